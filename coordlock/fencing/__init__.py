"""Fences: the resource's half of a lock, which refuses the tokens of past holders.

::

    from coordlock.fencing.sql import SQLFence                  # inside the caller's transaction
    from coordlock.fencing.redis import RedisFence              # in one script with the command
    from coordlock.fencing.files import FileFence               # files on one machine
    from coordlock.fencing.http import fenced                   # the header, sent
    from coordlock.fencing.http import FencingMiddleware        # the header, checked

    with client.lock("alice") as grant, engine.begin() as transaction:
        SQLFence(transaction).check("alice", grant)             # StaleToken when it was overtaken
        transaction.execute(...)

What is kept in the service itself needs no fence: see `coordlock.Grant.transaction`.
"""

from coordlock.fencing.fence import AsyncFence, AsyncGuardingFence, Fence, GuardingFence
from coordlock.fencing.marks import Marks
from coordlock.fencing.memory import AsyncMemoryFence, MemoryFence
from coordlock.fencing.token import MAX_TOKEN, Fenceable, FencingToken, Presented

__all__ = [
    "MAX_TOKEN",
    "AsyncFence",
    "AsyncGuardingFence",
    "AsyncMemoryFence",
    "Fence",
    "Fenceable",
    "FencingToken",
    "GuardingFence",
    "Marks",
    "MemoryFence",
    "Presented",
]
