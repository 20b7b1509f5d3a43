"""How a lock is acquired, kept and given up, on every backend: the same protocol for all.

Begin with `acquisition`; a loss begins in `session`. The page on the architecture follows both.
"""
