"""The contract suites fail backends that do not keep what they promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest
from coordlock_memory import MemoryBackend

from coordlock.backend import Departure, Operation, Written
from coordlock.errors import VersionMismatch
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime.promise import Promise, resolved
from coordlock.testing import data_contract, observation_contract
from coordlock.testing.backend_contract import Party, backend_for
from coordlock.testing.entry_set_contract import EntrySetContract
from coordlock.testing.published_value_contract import PublishedValueContract
from coordlock.testing.queue_contract import QueueContract
from coordlock.testing.waiting import eventually
from tests.contract.disturbing import InMemory


class OnMemory(QueueContract):
    backend = MemoryBackend


class Data(InMemory, data_contract.DataContract): ...


class EntrySets(InMemory, EntrySetContract): ...


class Observations(InMemory, observation_contract.ObservationContract): ...


class PublishedValues(InMemory, PublishedValueContract): ...


class Negligent(MemoryBackend):
    """Tells departures in pairs, the later one first, and says that all is in order."""

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        *,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        late = self.__dict__.setdefault("late", [])

        def keep(_: Departure) -> None:
            departure = Departure.IN_ORDER if waiters else Departure.UNORDERED
            late.append(partial(on_departure, departure))
            if len(late) == 2:
                while late:
                    late.pop()()

        return super().watch(contender, revision, keep, waiters=waiters, changes=changes)


def test_a_backend_that_claims_an_order_that_it_does_not_keep_fails(root: str) -> None:
    one, two = (Party(backend_for(Negligent, f"memory://{root}")) for _ in range(2))
    suite = QueueContract()
    with pytest.raises(AssertionError):
        suite.test_a_departure_told_in_order_comes_after_an_earlier_one_of_the_waiter(one, two)


class Piecemeal(MemoryBackend):
    """Enqueues a set one by one, each queue's contender when its turn comes."""

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        enqueue = super().enqueue
        return resolved(tuple(enqueue([entry]).result()[0] for entry in entries))


class Pushing(MemoryBackend):
    """Enqueues whatever is in the way."""

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        return super().enqueue(entries)


class Forgetful(MemoryBackend):
    """Sets a value whatever its version."""

    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:
        found = self.service.snapshot(contender.key.rpartition("/")[0]).find(contender.id)
        return super().publish(contender, value, found.version if found else version)


class Unaware(MemoryBackend):
    """Follows the service, and never finds out that a connection broke."""

    def _break(self) -> None:
        pass


class Careless(MemoryBackend):
    """Writes several keys one after the other, and looks at the first guard alone."""

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[Written]:
        written = [super(Careless, self).write([one], guards[:1]) for one in operations]
        return next((one for one in written if one.exception()), written[-1])


class Restarting(MemoryBackend):
    """Gives tokens again that it has given before."""

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        [snapshot] = super().enqueue(entries, unless_blocked=unless_blocked).result()
        same = tuple(replace(one, token=7) for one in snapshot.contenders)
        return resolved((replace(snapshot, contenders=same),))


@pytest.fixture
def parties(root: str) -> Iterator[Callable[[type[MemoryBackend]], Party]]:
    made: list[Party] = []

    def make(kind: type[MemoryBackend]) -> Party:
        made.append(Party(backend_for(kind, f"memory://{root}")))
        return made[-1]

    yield make
    for party in made:
        party.backend.close()


Parties = Callable[[type[MemoryBackend]], Party]


def test_a_backend_that_enqueues_what_is_blocked_fails(parties: Parties) -> None:
    one, two = parties(Pushing), parties(Pushing)
    with pytest.raises(AssertionError):
        QueueContract().test_who_waits_blocks_like_who_holds(one, two)


def test_a_backend_that_adopts_a_part_of_a_set_fails(parties: Parties) -> None:
    with pytest.raises(AssertionError):
        EntrySets().test_a_set_of_which_a_part_is_gone_is_not_adopted(
            parties(Piecemeal), parties(Piecemeal)
        )


def test_a_backend_that_brings_back_an_old_value_fails(parties: Parties) -> None:
    with pytest.raises(pytest.fail.Exception):
        PublishedValues().test_a_change_that_comes_late_undoes_no_newer_one(parties(Forgetful))


def test_a_backend_that_takes_a_stale_view_for_the_newest_fails(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    for suite in (observation_contract, data_contract):
        monkeypatch.setattr(suite, "eventually", partial(eventually, within=0.3))
    one, two = parties(Unaware), parties(Unaware)
    with pytest.raises(TimeoutError):
        Observations().test_after_broken_connections_the_newest_state_is_seen(one, two)
    with pytest.raises(TimeoutError):
        Data().test_a_follower_that_was_cut_off_sees_what_is_then_there(
            one, parties(Unaware), "/a/"
        )


def test_a_backend_that_writes_in_parts_fails(parties: Parties) -> None:
    with pytest.raises((AssertionError, VersionMismatch)):
        Data().test_an_unmet_expectation_stops_the_whole_write(parties(Careless), "/a/")


def test_a_backend_that_looks_at_one_of_its_guards_fails(parties: Parties) -> None:
    with pytest.raises(pytest.fail.Exception):
        Data().test_every_guard_must_stand_in_its_queue(parties(Careless), parties(Careless), "/b/")


def test_a_backend_whose_tokens_do_not_grow_fails(parties: Parties) -> None:
    with pytest.raises(AssertionError):
        OnMemory().test_tokens_that_grow_do_so_when_a_queue_or_a_session_has_ended(
            parties(Restarting), parties(Restarting), lambda: parties(Restarting)
        )
