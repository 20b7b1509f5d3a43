"""Locks and their grants. Begin with `lock` and `grant`; every other kind has a file of its own.

The other kinds are `reentrant`, `upgradeable`, and `several` for many names at once.
"""
