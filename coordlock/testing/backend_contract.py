"""What every backend promises, whatever it declares: the abstract methods of `Backend`.

Subclass `BackendContract` in a test module with a fixture ``url`` and the class attribute
``backend``, as for `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import ClassVar, TypeVar

import pytest

from coordlock.backend import Backend, Capability, SessionInfo
from coordlock.backend.config import configure
from coordlock.errors import BackendUnavailable, SessionLost
from coordlock.model.admission import is_blocked
from coordlock.model.claim import AnyClaim, Convertible, Mode
from coordlock.model.contender import Contender, Entry, Owner, Snapshot, are_same
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.promise import Promise
from coordlock.testing.waiting import eventually

__all__ = ["BackendContract"]

B = TypeVar("B", bound=Backend)
T = TypeVar("T")

#: No answer takes longer on a healthy service, however loaded the machine is.
BOUND = 50.0
OWNER = Owner(host="contract", pid=1, label="a test", since=1.0)


class Listener:
    """Remembers what a backend said of its session."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.ended = threading.Event()

    def suspect(self, reason: str) -> None:
        self.events.append(f"suspect: {reason}")

    def recovered(self) -> None:
        self.events.append("recovered")

    def lost(self, reason: str) -> None:
        self.events.append(f"lost: {reason}")
        self.ended.set()


class Party:
    """One backend with an open session."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.listener = Listener()
        self.info: SessionInfo = backend.open(self.listener).result(BOUND)

    def enqueue(self, queue: str, claim: AnyClaim = Mode.EX) -> tuple[Entry, Contender, Snapshot]:
        """A new entry, its contender and the snapshot that came with it."""
        entry = Entry(queue, uuid.uuid4().hex, claim, OWNER)
        snapshot = self.add(entry)
        contender = snapshot.find(entry.id)
        assert contender is not None
        return entry, contender, snapshot

    def try_to(self, queue: str, claim: AnyClaim = Mode.EX) -> tuple[Entry, Snapshot]:
        """A new entry, and the snapshot that came when it was enqueued unless it was blocked."""
        value = claim.encode() if isinstance(claim, Convertible) else b""
        entry = Entry(queue, uuid.uuid4().hex, claim, OWNER, value)
        return entry, self.add(entry, unless_blocked=True)

    def add(self, entry: Entry, *, unless_blocked: bool = False) -> Snapshot:
        """Enqueue one entry; the snapshot of its queue."""
        [found] = self.backend.enqueue([entry], unless_blocked=unless_blocked).result(BOUND)
        return found

    def remove(self, entry: Entry) -> bool:
        """Withdraw one entry; whether it was there."""
        return self.backend.withdraw([entry]).result(BOUND)

    def ids(self, queue: str) -> list[str]:
        """Which contenders stand in the queue, in their order."""
        seen = self.backend.snapshot(queue, owners=True).result(BOUND)
        return [one.id for one in seen.contenders]


def backend_for(kind: type[B], url: str) -> B:
    """A backend as a client has it, with timers of its own."""
    return kind.configure(configure(url), timers=SystemTimers("coordlock-contract"))


class PartySuite:
    """Fixtures of the suites that speak to backends without a client."""

    backend: ClassVar[type[Backend]]
    #: The suite is for backends that declare these.
    needs: ClassVar[tuple[Capability, ...]] = ()

    @pytest.fixture
    def party(self, url: str) -> Iterator[Callable[[], Party]]:
        """Makes parties of the test's service; their backends are closed after the test."""
        parties: list[Party] = []

        def make() -> Party:
            parties.append(Party(backend_for(self.backend, url)))
            return parties[-1]

        yield make
        for one in parties:
            one.backend.close().result(BOUND)

    @pytest.fixture
    def one(self, party: Callable[[], Party]) -> Party:
        return party()

    @pytest.fixture
    def two(self, party: Callable[[], Party]) -> Party:
        return party()

    @staticmethod
    def repeated(request: Callable[[], Promise[T]]) -> T:
        """The answer to ``request``, repeated as the kernel does in an outage."""
        deadline = time.monotonic() + BOUND
        while True:
            try:
                return request().result(BOUND)
            except BackendUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


class BackendContract(PartySuite):
    """What every service does."""

    def test_a_session_has_an_id_and_a_time_to_live(self, one: Party, two: Party) -> None:
        assert one.info.id
        assert one.info.id != two.info.id
        assert (one.info.ttl == math.inf) is not self.backend.capabilities.leased

    def test_a_heartbeat_grants_at_most_the_time_to_live(self, one: Party) -> None:
        assert 0 < one.backend.heartbeat().result(BOUND) <= one.info.ttl

    def test_closing_twice_is_closing_once(self, one: Party) -> None:
        one.backend.close().result(BOUND)
        one.backend.close().result(BOUND)

    def test_closing_ends_the_session_and_its_contenders(self, one: Party, two: Party) -> None:
        one.try_to("q")
        one.backend.close().result(BOUND)

        def is_free() -> bool:
            entry, snapshot = two.try_to("q")
            return snapshot.find(entry.id) is not None

        eventually(is_free)

    def test_a_closed_backend_fails_every_request(self, one: Party) -> None:
        entry, _ = one.try_to("q")
        one.backend.close().result(BOUND)
        for request in (
            lambda: one.backend.heartbeat(),
            lambda: one.backend.enqueue([entry], unless_blocked=True),
            lambda: one.backend.withdraw([entry]),
            lambda: one.backend.describe(),
        ):
            with pytest.raises((BackendUnavailable, SessionLost)):
                request().result(BOUND)

    def test_what_is_blocked_leaves_nothing_behind(self, one: Party, two: Party) -> None:
        ahead, first = two.try_to("q")
        made = first.find(ahead.id)
        assert made is not None
        assert made.token is not None or not self.backend.capabilities.fenced
        entry, blocked = one.try_to("q")
        assert is_blocked(blocked, entry)
        assert one.remove(entry) is False
        assert two.remove(ahead) is True
        assert two.remove(ahead) is False
        later, snapshot = one.try_to("q")
        assert snapshot.find(later.id) is not None

    def test_trying_again_finds_the_same_contender(self, one: Party) -> None:
        entry, first = one.try_to("q")
        again = one.add(entry, unless_blocked=True)
        before, after = first.find(entry.id), again.find(entry.id)
        assert before is not None
        assert after is not None
        assert are_same(before, after)

    def test_of_many_at_once_one_at_most_has_nothing_before_it(
        self, one: Party, two: Party
    ) -> None:
        entries = [Entry("q", uuid.uuid4().hex, Mode.EX, OWNER) for _ in range(40)]
        answers = [
            party.backend.enqueue([entry], unless_blocked=True)
            for party, entry in zip((one, two) * 20, entries, strict=True)
        ]
        alone = 0
        for entry, answer in zip(entries, answers, strict=True):
            [snapshot] = answer.result(BOUND)
            made = snapshot.find(entry.id)
            assert made is not None or is_blocked(snapshot, entry)
            alone += made is not None and not snapshot.before(made)
        assert alone <= 1

    def test_withdrawing_what_was_never_enqueued_removes_nothing(self, one: Party) -> None:
        entry = Entry("q", uuid.uuid4().hex, Mode.EX, OWNER)
        assert one.remove(entry) is False

    def test_the_service_tells_who_it_is(self, one: Party) -> None:
        assert one.backend.describe().result(BOUND).service.lower() == self.backend.scheme
