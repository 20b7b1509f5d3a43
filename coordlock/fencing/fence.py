"""The contract of fences: the resource's half of a lock.

A fence remembers the newest token that it has seen of each resource, and refuses older ones, by the
rule of `coordlock.fencing.marks.Marks`. That protects a resource only where check and operation are
one step, so that no newer holder comes in between. Each fence says what makes them one step: the
caller's transaction, a script, a file's lock.

Beside the errors that they name, all methods raise `InvalidToken`; `Unsupported`; `LockLost` for a
grant that is known to be released or lost; TypeError and ValueError for a text that can name no
resource; and the errors of the resource's own library as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from coordlock.fencing.marks import Marks
from coordlock.fencing.token import Presented

__all__ = ["AsyncFence", "AsyncGuardingFence", "Fence", "GuardingFence"]


class Fence(ABC):
    """Remembers the newest tokens and refuses older ones.

    ``resource`` names what is protected: any text without NUL that UTF-8 can encode; databases have
    limits of their own. Everything that one lock protects can be one resource. Never protect one
    resource with two locks: their tokens cannot be compared.
    """

    @abstractmethod
    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        """Remember ``token``; raise `StaleToken` when a newer one was seen.

        ``token`` is a grant, or a grant's number; then ``shared`` tells whether it is a read
        lock's. Equal tokens always pass. Check reads like writes, before they read.
        """

    @abstractmethod
    def marks(self, resource: str) -> Marks:
        """The newest tokens seen; 0 for none. For people and tests."""

    @abstractmethod
    def forget(self, resource: str) -> None:
        """Forget the tokens seen of ``resource``; the next token passes, whatever it is.

        Use it for a resource that is gone, or when tokens start again at lower numbers: after a
        move to another backend, or after an old backup was restored. Call it only when no earlier
        grant can still act.
        """


class GuardingFence(Fence):
    """A fence that can hold newer tokens back until an operation is over."""

    @abstractmethod
    def guard(
        self, resource: str, token: Presented, shared: bool = False
    ) -> AbstractContextManager[Any]:
        """Check as `check` does, and make the check and the block one step.

        A newer token is admitted only after the block, so keep it short: a block that hangs holds
        up the next holder of the lock. Equal tokens, and readers among themselves, may run
        together. Raises `StaleToken` before the block.
        """

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        """Remember ``token``; raise `StaleToken` when a newer one was seen.

        It suffices before a read. For a write use `guard`: a newer holder can come in between.
        """
        with self.guard(resource, token, shared):
            pass


class AsyncFence(ABC):
    """`Fence` for asyncio."""

    @abstractmethod
    async def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        """Remember ``token``; raise `StaleToken` when a newer one was seen: see `Fence.check`."""

    @abstractmethod
    async def marks(self, resource: str) -> Marks:
        """The newest tokens seen; 0 for none. For people and tests."""

    @abstractmethod
    async def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``: see `Fence.forget`."""


class AsyncGuardingFence(AsyncFence):
    """`GuardingFence` for asyncio."""

    @abstractmethod
    def guard(
        self, resource: str, token: Presented, shared: bool = False
    ) -> AbstractAsyncContextManager[Any]:
        """Make the check and the block one step: see `GuardingFence.guard`.

        Work that the block starts must end in it: a thread goes on when its task is cancelled.
        """

    async def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        """Remember ``token``; raise `StaleToken` when a newer one was seen.

        It suffices before a read. For a write use `guard`: a newer holder can come in between.
        """
        async with self.guard(resource, token, shared):
            pass
