"""Redlock: locks in several servers that know nothing of each other.

::

    backend  the contract
    nodes    which servers may vote, and what ``coordlock doctor`` shows of them
"""

from coordlock_redis.redlock.backend import RedlockBackend

__all__ = ["RedlockBackend"]
