"""What grants of every kind have in common, for annotations: `GrantLike` and `AsyncGrantLike`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

from coordlock.locks.grant import GrantState
from coordlock.settings import Duration

__all__ = ["AsyncGrantLike", "AsyncLoss", "GrantLike", "Loss"]


class _BaseLoss(Protocol):
    """What the signals of sync and async grants share."""

    def is_set(self) -> bool:
        """Whether what was held was lost."""

    @property
    def reason(self) -> str | None:
        """Why it was lost, or None."""


class Loss(_BaseLoss, Protocol):
    """A loss signal, such as `coordlock.types.LossSignal`."""

    def wait(self, timeout: Duration | None = None) -> bool:
        """Block until the loss, for ``timeout`` seconds at most; returns whether it was lost."""


class AsyncLoss(_BaseLoss, Protocol):
    """A loss signal, such as `coordlock.types.AsyncLossSignal`."""

    async def wait(self) -> bool:
        """Wait until the loss or the release; returns whether it was a loss."""


class _BaseGrantLike(Protocol):
    """What the grants of both kinds of clients share."""

    @property
    def token(self) -> int:
        """The fencing token, 1 to 2**63 - 1.

        A grant of several locks has one if all of them got the same. Raises `Unfenceable` if a
        grant has none, or several that differ.
        """

    @property
    def state(self) -> GrantState:
        """The state now. Cheap: it does not ask the service."""

    def remaining(self) -> float:
        """Seconds for which all of it is certainly held; infinite on backends without leases."""

    def check(self) -> None:
        """Raise `LockLost` unless all of it is held. It does not ask the service."""


class GrantLike(_BaseGrantLike, Protocol):
    """What grants of every kind offer, `coordlock.Grant` among them.

    Use it to annotate functions that take any of them. Losing one part loses the whole grant.
    """

    @property
    def lost(self) -> Loss:
        """The loss signal."""

    def on_lost(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback`` once with this grant if it is lost, in a thread for such callbacks."""

    def release(self, timeout: Duration | None = None) -> bool:
        """Release all of it within ``timeout`` seconds; returns whether it was still held."""


class AsyncGrantLike(_BaseGrantLike, Protocol):
    """What grants of every kind offer, `coordlock.AsyncGrant` among them.

    Use it to annotate functions that take any of them. Losing one part loses the whole grant.
    """

    @property
    def lost(self) -> AsyncLoss:
        """The loss signal."""

    def on_lost(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback`` once with this grant if it is lost, in the event loop of this call."""

    async def release(self, timeout: Duration | None = None) -> bool:
        """Release all of it within ``timeout`` seconds; returns whether it was still held."""
