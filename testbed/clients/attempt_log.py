"""One attempt of a client, from the call of acquire to the answer of release, written down."""

from __future__ import annotations

import threading
from typing import Final

from coordlock_faults.events import (
    AcquireFailed,
    AcquireInvoked,
    Granted,
    LossSignalled,
    ReleaseAcknowledged,
    ReleaseFailed,
    ReleaseSent,
    Withdrawn,
)
from coordlock_faults.journal import Journal

from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.locks.signals import Signal
from coordlock.model.claim import Claim, Mode
from coordlock.runtime.clock import SYSTEM_CLOCK

__all__ = ["THREADS", "AttemptLog"]

#: How the names of the workload's own threads begin.
THREADS: Final = "workload"


class AttemptLog:
    """One call of acquire and the grant that it returns.

    Made just before the call, and told of everything just when `coordlock_faults.events`
    says so. A thread of its own waits for the loss, because an event loop may be busy.

    Attributes:
        name, lock, claim: as they are written down.
        token: the fencing token of the grant; 0 before.
        withdrawn: whether acquire was cancelled.
        told: set when the waiting thread was woken, by a loss or a release.
    """

    def __init__(
        self,
        journal: Journal,
        name: str,
        lock: str,
        claim: Claim,
        together: str = "",
        actor: str = "",
    ) -> None:
        self.name: Final = name
        self.lock: Final = lock
        self.claim: Final = claim
        self.token = 0
        self.withdrawn = False
        self.told: Final = threading.Event()
        self._journal = journal
        self._grant: Grant | AsyncGrant | None = None
        # Between a release and a loss, whichever is written down first is the end.
        self._gate = threading.Lock()
        self._over = False
        journal.log(AcquireInvoked, name, lock, claim, together, actor)

    @property
    def grant(self) -> Grant | AsyncGrant:
        """What acquire has returned."""
        assert self._grant is not None
        return self._grant

    @property
    def shared(self) -> bool:
        """Whether a fence is to take the token for a reader's."""
        return self.claim is Mode.PR

    @property
    def lost(self) -> bool:
        """Whether the loss signal is set."""
        return self.grant.lost.is_set()

    def failed(self, error: str, detail: str = "") -> None:
        """Acquire has raised, or returned None."""
        self._journal.log(AcquireFailed, self.name, error, detail)

    def withdraw(self) -> None:
        """Acquire is going to be cancelled."""
        self._journal.log(Withdrawn, self.name)
        self.withdrawn = True

    def granted(self, grant: Grant | AsyncGrant, token: int | None = None) -> None:
        """Acquire has returned ``grant``; of several locks, this one has the ``token``."""
        self._grant, self.token = grant, grant.token if token is None else token
        deadline = self._journal.moment(SYSTEM_CLOCK.now() + grant.remaining())
        self._journal.log(Granted, self.name, self.token, deadline)
        threading.Thread(target=self._await_loss, name=f"{THREADS}-loss", daemon=True).start()

    def releasing(self, patience: float | None = None) -> None:
        """Release is going to be called, and waits so many seconds for the service."""
        nanoseconds = None if patience is None else round(patience * 1e9)
        with self._gate:
            self._over = True
            self._journal.log(ReleaseSent, self.name, nanoseconds)

    def released(self, held: bool) -> None:
        """Release has returned ``held``."""
        self._journal.log(ReleaseAcknowledged, self.name, held)

    def release_failed(self, error: Exception) -> None:
        """Release has raised."""
        self._journal.log(ReleaseFailed, self.name, type(error).__name__, str(error))

    def forget(self) -> None:
        """The run is over: write nothing down any more."""
        with self._gate:
            self._over = True

    def _await_loss(self) -> None:
        # The blocking signal works for either kind of grant, and needs no event loop.
        signal = Signal(self.grant._loss, self.grant._end)
        if signal.wait():
            # The public `remaining` is 0 now; what the deadline was, only the session knows.
            deadline = self._journal.moment(self.grant._ticket.session.deadline)
            with self._gate:
                if not self._over:
                    self._journal.log(LossSignalled, self.name, signal.reason or "", deadline)
        self.told.set()
