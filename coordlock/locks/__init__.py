"""Locks and their grants: of a name, of several, of subtrees; reentrant; with a value.

`coordlock.locks.lock` is where to begin.
"""
