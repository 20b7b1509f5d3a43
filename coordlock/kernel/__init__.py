"""How a lock is acquired, kept and given up, on every backend: the same protocol for all."""
