"""Locks for one holder that shares them with readers, and may become the writer in its place.

Whatever ends an upgrade, it is taken back by one more publication behind it. A grant counts as
weaker before that is published, and as stronger only when the service has acknowledged it. What
comes next, `coordlock.model.conversion` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from coordlock.errors import (
    CoordlockError,
    Evicted,
    Unsupported,
    WaitCancelled,
    WaitTimeout,
    WaitUnavailable,
)
from coordlock.kernel.access import Access
from coordlock.kernel.deadlock_detector import DeadlockDetector
from coordlock.kernel.engine import Engine
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.locks.base_grant import BaseGrant
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.locks.lock import AcquireOptions, AwaitingLock, BlockingLock, NamedLock
from coordlock.locks.publishing import Publisher
from coordlock.model import conversion
from coordlock.model.claim import Convertible, Mode
from coordlock.model.contender import Contender, Snapshot, find_same
from coordlock.runtime.deadline import ENDING, Cancellation, Cancelled, DeadlineReached
from coordlock.runtime.driver import Steps, awaiting, blocking, bounded
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, resolved, settled
from coordlock.runtime.recorder import RECORDER
from coordlock.settings import DEFAULT, Timeout, timeout_of

if TYPE_CHECKING:
    from coordlock.kernel.recording import Recording

__all__ = [
    "AsyncUpgradeableGrant",
    "AsyncUpgradeableLock",
    "UpgradeableGrant",
    "UpgradeableLock",
]

log = Log("coordlock")

#: Seconds after which a reading is repeated that shows less than is known.
_REREAD_PAUSE_S: Final = 0.1


class _UpgradeableGrant(BaseGrant):
    """What sync and async grants of upgradeable locks share."""

    def __init__(self, engine: Engine, ticket: Ticket) -> None:
        super().__init__(engine, ticket)
        #: The mode that the holder may count on.
        self._mode = Mode.PR
        self._publisher = Publisher(engine, ticket)
        #: What stands for the upgrade that is under way.
        self._under_way: object | None = None
        #: Whether it is a try, which does not wait.
        self._once = False
        #: What it waits for, and the contenders in its way.
        self._news: Promise[None] = resolved(None)
        self._blockers: Sequence[Contender] = ()
        self._recording: Recording | None = None

    @property
    def claim(self) -> Mode:
        """The mode that is held now: PR, or EX while it is upgraded."""
        return self._mode

    @property
    def token(self) -> int:
        """The fencing token, 1 to 2**63 - 1: greater than that of all grants it waited for.

        Raises `Unsupported` while the grant is upgraded.
        """
        if self._mode is Mode.EX:
            problem = (
                "was upgraded, and readers had the lock with newer tokens before that: a fence "
                "would refuse it. Use grant.transaction(), or acquire a write lock at once"
            )
            raise Unsupported(f"the grant of {self.name!r} {problem}")
        return self._first_token

    def _upgrade(
        self, timeout: Timeout = DEFAULT, *, cancellation: Cancellation | None = None
    ) -> Steps[None]:
        """Hold the lock exclusively from now on, without giving up the place in its queue.

        It waits for the readers that hold the lock and for waiters ahead of this grant; later ones
        wait for it. Meanwhile nobody else may write.

        ``timeout`` (seconds, or such as ``"30s"``) bounds the call, by default the client's: None
        waits forever, 0 tries once. Raises `WaitTimeout`, `DeadlockDetected`, and
        `WaitCancelled` when ``cancellation`` is cancelled, or when it would have to wait
        after a signal handled by `release_on_signals`: after these the grant shares the lock as
        before. Raises `LockLost` once it is lost or released, `WaitUnavailable`,
        `AuthenticationFailed`, `ClientClosed`.
        """
        self.check()
        default = self._engine.settings.timeout
        seconds = timeout_of("upgrade", default if timeout is DEFAULT else timeout)
        if self._mode is not Mode.EX:
            yield from self._guarded(self._upgraded(seconds, cancellation))
        self.check()

    def _downgrade(self) -> Steps[None]:
        """Share the lock with readers again; waits for nobody.

        Readers at the head of the queue are granted. Raises `LockLost` once it is lost or released,
        and `BackendUnavailable` when no answer came within the client's ``request_timeout``: then
        this process already shares the lock, and the service learns of it later.
        """
        self.check()
        if self._mode is not Mode.PR:
            yield from self._guarded(self._downgraded())
        self.check()

    def _downgraded(self) -> Steps[None]:
        self._mode = Mode.PR
        try:
            yield from self._engine.send(self._publish, "the downgrade")
        finally:
            self._settle()

    def _upgraded(self, seconds: float | None, cancellation: Cancellation | None) -> Steps[None]:
        """Hold mode EX from now on, within ``seconds``; 0 tries once."""
        engine, mine, recording = self._engine, object(), None
        started = engine.clock.now()
        try:
            with engine.lock:
                if self._under_way is not None:
                    raise RuntimeError(f"the grant of {self.name!r} is being upgraded already")
                self._under_way = mine
            self._once = seconds == 0
            recording = self._recording = self._begun_recording()
            patience = engine.settings.request_timeout if self._once else seconds
            yield from bounded(self._become_exclusive(), engine.until(patience, cancellation))
            if recording is not None:
                recording.upgraded()
        except BaseException as error:
            ended = self._error_for(error, engine.clock.now() - started)
            if recording is not None:
                recording.failed(ended, once=self._once)
            if ended is not error:
                raise ended from ended.__cause__
            raise
        finally:
            if self._under_way is mine:
                self._under_way = None
                self._settle()

    def _error_for(self, error: BaseException, waited: float) -> BaseException:
        """The error of an upgrade that ends because of ``error``, with its cause; most stay."""
        name, problem = self.name, "was not upgraded, and is still held in mode PR"
        ended: BaseException = error
        if isinstance(error, Cancelled):
            ended = WaitCancelled(name, str(error), problem=problem)
        elif isinstance(error, DeadlineReached):
            is_in_doubt = not self._once and self._ticket.session.suspicion is not None
            if self._blockers and not is_in_doubt:
                problem = f"{problem}: {self._blockers[-1]} is in the way, and did not leave"
                return WaitTimeout(name, waited, problem=problem)
            silent, problem = self._engine.silent(error), "was not upgraded"
            ended = WaitUnavailable(silent.service, silent.reason, name, waited, problem=problem)
        ended.__cause__ = error.__cause__
        return ended

    def _settle(self) -> None:
        """No conversion is under way: publish that, where it is not what was published."""
        self._blockers = ()
        self._ticket.blocker = self._ticket.waits_since = None
        self._publish().add_done_callback(self._taken_back)

    def _become_exclusive(self) -> Steps[None]:
        undetect: Callable[[], None] | None = None
        try:
            yield settled(self._publisher.last)
            while True:
                self.check()
                snapshot = yield from self._read_queue()
                step = conversion.decide(snapshot, self._mine())
                if self._once or ENDING.reason is not None:
                    self._must_not_wait(snapshot, step)
                if isinstance(step, Convertible):
                    yield self._publish(step)
                    if step.mode is Mode.EX:
                        self._mode = step.mode
                        return
                else:
                    self._blockers = conversion.upgrade_blockers(snapshot, self._mine())
                    self._ticket.waits_for(snapshot.queue, step)
                    self._note_wait()
                    undetect = undetect or self._detect()
                    yield from self._wait(step, snapshot.revision)
        finally:
            if undetect is not None:
                undetect()

    def _must_not_wait(self, snapshot: Snapshot, step: Convertible | Contender) -> None:
        """Raise where it would have to wait, before what it publishes keeps anybody out."""
        if isinstance(step, Contender):
            self._blockers = (step,)
        else:
            self._blockers = conversion.blockers_to_begin(snapshot, self._mine())
        if self._blockers:
            self._note_wait()
            raise DeadlineReached if self._once else Cancelled(ENDING.reason)

    def _begun_recording(self) -> Recording | None:
        if not RECORDER.listeners:
            return None
        from coordlock.kernel.recording import Recording

        ticket = self._ticket
        claims = {ticket.entries[0].queue: Mode.EX}
        return Recording(self._engine, "upgrade", ticket.called, claims)

    def _note_wait(self) -> None:
        if self._recording is not None:
            self._recording.waits(len(self._blockers), once=self._once)

    def _mine(self) -> Contender:
        return self._ticket.contenders[0]

    def _taken_back(self, answer: Promise[None]) -> None:
        error = answer.exception()
        if error is not None and not self._ticket.is_leaving and self._ticket.lost is None:
            text = "lock %r: %s; it may keep others out needlessly until its release"
            log.warning(text, self._ticket.name, error)

    def _publish(self, claim: Convertible | None = None) -> Promise[None]:
        """Publish ``claim``; None for the mode that is held when that is sent."""
        return self._publisher.publish(lambda: (claim or Convertible(self._mode)).encode())

    def _read_queue(self) -> Steps[Snapshot]:
        backend, ticket = self._engine.backend, self._ticket
        queue = ticket.entries[0].queue

        def ask() -> Promise[Snapshot]:
            return ticket.unless_lost(backend.snapshot(queue, owners=True))

        while True:
            snapshot = yield from retried(ask, self._engine.timers, pause=ticket.pause)
            found = find_same(self._mine(), snapshot.contenders)
            if found is None:
                raise Evicted(queue)
            if found.version >= self._mine().version:
                return snapshot
            yield ticket.pause(_REREAD_PAUSE_S)  # some servers show the past after a pause

    def _wait(self, contender: Contender, revision: int) -> Steps[None]:
        """Wait until ``contender`` has left, or the grant has ended."""
        news = self._news = Promise[None]()
        wake = partial(_tell, news)
        cancel = self._engine.backend.watch(contender, revision, wake)
        self._ticket.end.add_done_callback(wake)
        try:
            yield news
        finally:
            self._ticket.end.remove_done_callback(wake)
            cancel()

    def _detect(self) -> Callable[[], None] | None:
        delay, caller = self._engine.settings.deadlock_delay, self._ticket.caller
        if delay is None or caller is None or len(self._engine.held_by(caller)) < 2:
            return None
        return DeadlockDetector.of(self._engine, delay).watch(self._ticket, caller, self._give_up)

    def _give_up(self, error: CoordlockError) -> bool:
        return self._news.fail(error)


class UpgradeableGrant(_UpgradeableGrant, Grant):
    """A grant that can become exclusive while the lock is held, and shared again."""

    upgrade = blocking(_UpgradeableGrant._upgrade)
    downgrade = blocking(_UpgradeableGrant._downgrade)


class AsyncUpgradeableGrant(_UpgradeableGrant, AsyncGrant):
    """A grant that can become exclusive while the lock is held, and shared again, for asyncio."""

    upgrade = awaiting(_UpgradeableGrant._upgrade)
    downgrade = awaiting(_UpgradeableGrant._downgrade)


G = TypeVar("G", bound=UpgradeableGrant | AsyncUpgradeableGrant)


class _UpgradeableLock(NamedLock[G]):
    """What sync and async upgradeable locks share."""

    _acquired_alone = (
        "is upgradeable, and several locks at once are not: acquire it alone, or give its name "
        "with the strongest mode that is needed"
    )

    def __init__(self, access: Access, name: str, options: AcquireOptions | None = None) -> None:
        super().__init__(access, name, Convertible(Mode.PR), options)
        access.engine.backend.require("publishing")


class UpgradeableLock(_UpgradeableLock[UpgradeableGrant], BlockingLock[UpgradeableGrant]):
    """A lock for one holder that shares it with readers, and may become the writer.

    See `UpgradeableGrant.upgrade`. The rest is as for `Lock`.
    """

    _grant_kind = UpgradeableGrant

    contenders = blocking(NamedLock[UpgradeableGrant]._contenders)


class AsyncUpgradeableLock(
    _UpgradeableLock[AsyncUpgradeableGrant], AwaitingLock[AsyncUpgradeableGrant]
):
    """A lock for one holder that shares it with readers, and may become the writer, for asyncio.

    The rest is as for `AsyncLock`.
    """

    _grant_kind = AsyncUpgradeableGrant

    contenders = awaiting(NamedLock[AsyncUpgradeableGrant]._contenders)


def _tell(news: Promise[None], _: object) -> None:
    news.resolve(None)
