"""Locks whose grants are converted to other modes in their place in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from coordlock.errors import Unfenceable
from coordlock.kernel.access import Access
from coordlock.locks.base_grant import BaseGrant
from coordlock.locks.base_lock import AcquireOptions
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.locks.lock import AwaitingLock, BlockingLock, NamedLock
from coordlock.model.claim import Convertible, Mode
from coordlock.runtime.cancellation import Cancellation
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking
from coordlock.settings import DEFAULT, Timeout, timeout_of

if TYPE_CHECKING:
    from coordlock.kernel.conversion import Conversions

__all__ = [
    "AsyncConvertibleGrant",
    "AsyncConvertibleLock",
    "ConvertibleGrant",
    "ConvertibleLock",
]


class _ConvertibleGrant(BaseGrant, shown="ConvertibleGrant"):
    """What sync and async grants of convertible locks share."""

    #: None where it was never converted.
    _conversions: Conversions | None = None

    @property
    def claim(self) -> Mode:
        """The mode that is held now."""
        return self._acquired if self._conversions is None else self._conversions.mode

    @property
    def _acquired(self) -> Mode:
        claim = self._ticket.entries[0].claim
        assert isinstance(claim, Convertible)
        return claim.mode

    @property
    def token(self) -> int:
        """The fencing token, 1 to 2**63 - 1: greater than that of all grants it waited for.

        Raises `Unfenceable` while the grant has a stronger mode than the acquired one.
        """
        acquired, held = self._acquired, self.claim
        if acquired.joined(held) is not acquired:
            problem = (
                f"was converted from {acquired.name} to {held.name}, and others had the lock "
                "with newer tokens before that: a fence would refuse it. Use "
                "grant.transaction(), or acquire the stronger mode at once"
            )
            raise Unfenceable(self.name, self._first_token, str(held), problem)
        return self._first_token

    def _convert(
        self,
        mode: Mode,
        timeout: Timeout = DEFAULT,
        *,
        cancellation: Cancellation | None = None,
    ) -> Steps[None]:
        """Hold the lock in ``mode`` from now on, without giving up the place in its queue.

        It waits for all holders that conflict with ``mode`` and for waiters ahead of this grant;
        later ones wait for it. Meanwhile nobody else holds the lock in a mode that conflicts with
        the present one. Converting to a weaker mode does not wait.

        ``timeout`` (seconds, or such as ``"30s"``) bounds the call, by default the client's: None
        waits forever, 0 tries once. Raises `ConversionTimeout`, `ConversionDeadlock` if another
        holder is converting, too, and each would wait for the other, `DeadlockDetected`, and
        `ConversionCancelled` when ``cancellation`` is cancelled, or when it would have to wait
        after a signal handled by `release_on_signals`: after these the grant keeps its mode. Raises
        `LockLost` once it is lost or released, ValueError for an unknown mode or NL,
        `WaitUnavailable`, `AuthenticationFailed`, `ForkedClient`.
        """
        self.check()
        mode = _held_in(mode)
        default = self._engine.settings.timeout
        seconds = timeout_of("convert", default if timeout is DEFAULT else timeout)
        if mode is not self.claim:
            yield from self._guarded(self._converting().convert(mode, seconds, cancellation))
        self.check()

    def _upgrade(
        self, timeout: Timeout = DEFAULT, *, cancellation: Cancellation | None = None
    ) -> Steps[None]:
        """Hold the lock exclusively from now on: ``convert(Mode.EX)``."""
        yield from self._convert(Mode.EX, timeout, cancellation=cancellation)

    def _downgrade(self, mode: Mode = Mode.PR) -> Steps[None]:
        """Hold the lock in ``mode``, shared with readers by default; waits for nobody.

        Waiters at the head of the queue that may now share it are granted. The rest is as for
        `convert`. Raises ValueError for a mode that is not part of the present one, and
        `BackendUnavailable` when no answer came within the client's ``request_timeout``: then this
        process already has the weaker mode, and the service learns of it later.
        """
        held = self.claim
        if held.joined(_held_in(mode)) is not held:
            raise ValueError(
                f"{mode!r} is not weaker than {held!r}, which is held: use convert({mode!r})"
            )
        yield from self._convert(mode, self._engine.settings.request_timeout)

    def _converting(self) -> Conversions:
        from coordlock.kernel.conversion import Conversions

        with self._engine.lock:
            if self._conversions is None:
                self._conversions = Conversions(self._engine, self._ticket, self.check)
            return self._conversions


def _held_in(mode: object) -> Mode:
    """``mode``, in which a lock can be held. Raises ValueError for something else."""
    if isinstance(mode, Mode) and mode is not Mode.NL:
        return mode
    modes = ", ".join(repr(one) for one in Mode if one is not Mode.NL)
    raise ValueError(f"mode must be one of {modes}, not {mode!r}")


class ConvertibleGrant(_ConvertibleGrant, Grant):
    """A grant that can change its mode while the lock is held."""

    convert = blocking(_ConvertibleGrant._convert)
    upgrade = blocking(_ConvertibleGrant._upgrade)
    downgrade = blocking(_ConvertibleGrant._downgrade)


class AsyncConvertibleGrant(_ConvertibleGrant, AsyncGrant):
    """A grant that can change its mode while the lock is held, for asyncio."""

    convert = awaiting(_ConvertibleGrant._convert)
    upgrade = awaiting(_ConvertibleGrant._upgrade)
    downgrade = awaiting(_ConvertibleGrant._downgrade)


G = TypeVar("G", bound=ConvertibleGrant | AsyncConvertibleGrant)


class _ConvertibleLock(NamedLock[G], shown="ConvertibleLock"):
    """What sync and async convertible locks share."""

    _acquired_alone = (
        "is convertible, and several locks at once are not: acquire it alone, or give its name "
        "with the strongest mode that is needed"
    )

    def __init__(
        self,
        access: Access,
        name: str,
        claim: Convertible,
        options: AcquireOptions | None = None,
    ) -> None:
        if claim.mode is Mode.NL:
            raise ValueError("a convertible lock cannot be acquired in mode NL: choose another")
        super().__init__(access, name, claim, options)
        access.engine.backend.require("publishing")


class ConvertibleLock(_ConvertibleLock[ConvertibleGrant], BlockingLock[ConvertibleGrant]):
    """A lock whose grants can be converted to other modes: `ConvertibleGrant.convert`.

    The rest is as for `Lock`.
    """

    _grant_kind = ConvertibleGrant

    contenders = blocking(NamedLock[ConvertibleGrant]._contenders)


class AsyncConvertibleLock(
    _ConvertibleLock[AsyncConvertibleGrant], AwaitingLock[AsyncConvertibleGrant]
):
    """A lock whose grants can be converted to other modes, for asyncio.

    The rest is as for `AsyncLock`.
    """

    _grant_kind = AsyncConvertibleGrant

    contenders = awaiting(NamedLock[AsyncConvertibleGrant]._contenders)
