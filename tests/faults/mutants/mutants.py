"""Mistakes that coordlock might make: each a patch of a few lines, for as long as a block lasts."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import coordlock_etcd.requests
import coordlock_zookeeper.nodes
import coordlock_zookeeper.transactions
from coordlock_zookeeper.answers import promise_of
from coordlock_zookeeper.queues import Queues
from coordlock_zookeeper.transactions import Step
from coordlock_zookeeper.watches import Watches

import coordlock.kernel.acquisition
import coordlock.kernel.ids
import coordlock.kernel.link
import coordlock.kernel.removal
import coordlock.model.admission
from coordlock.errors import BackendUnavailable
from coordlock.fencing.marks import Marks
from coordlock.grant import AsyncGrant, Grant
from coordlock.kernel.acquisition import _Acquisition
from coordlock.kernel.departures import Departures
from coordlock.kernel.link import Link
from coordlock.kernel.removal import removal
from coordlock.kernel.session import Session
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode, Permit
from coordlock.model.contender import Contender, Snapshot
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking
from coordlock.runtime.promise import resolved
from coordlock.testing.faults.events import Kind
from testbed.resource.protocol import Answer, Request
from testbed.resource.resource import Resource

__all__ = ["Mutation"]

#: What makes the mistake.
Mutation = Callable[[], AbstractContextManager[Any]]


def patched(*changes: tuple[object, str, object]) -> Mutation:
    """Set these attributes of these objects for as long as the block lasts."""

    @contextmanager
    def mutation() -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, new in changes:
                stack.enter_context(patch.object(target, name, new))
            yield

    return mutation


def nothing(*_: object, **__: object) -> None:
    """Do not."""


# The protocol.


def _read_without_a_look(self: _Acquisition, ticket: Ticket, upto: Contender | None) -> Any:
    return (yield self.link.backend.snapshot(self.queue, upto))


grants_without_a_look_at_its_own_contender = patched(
    (Ticket, "vanished", nothing),
    (Ticket, "check", nothing),
    (_Acquisition, "_read", _read_without_a_look),
)


def _wait_for_anything(
    self: _Acquisition, ticket: Ticket, me: Contender, snapshot: Snapshot, blockers: Any
) -> Any:
    yield ticket.departure(blockers, snapshot.revision)
    return replace(snapshot, contenders=(me,), omitted=0)


takes_any_departure_for_its_turn = patched((_Acquisition, "_wait", _wait_for_anything))

_depart = Departures._depart


@contextmanager
def misses_some_departures() -> Iterator[None]:
    """The first one, and every third one after that."""
    missed = itertools.cycle((True, False, False))

    def depart(self: Departures, contender: Contender, in_order: bool) -> None:
        if not next(missed):
            _depart(self, contender, in_order)

    with patched((Departures, "_depart", depart))():
        yield


def _depart_in_order(self: Departures, contender: Contender, _: bool) -> None:
    _depart(self, contender, True)


takes_departures_for_ordered = patched((Departures, "_depart", _depart_in_order))

_blockers = coordlock.model.admission.blockers


def _generous(snapshot: Snapshot, me: Contender) -> tuple[Contender, ...]:
    if isinstance(me.claim, Permit):
        me = replace(me, claim=Permit(me.claim.of + 1))
    return _blockers(snapshot, me)


gives_one_permit_too_many = patched((coordlock.kernel.acquisition, "blockers", _generous))


def _nearest(snapshot: Snapshot, me: Contender) -> tuple[Contender, ...]:
    return _blockers(snapshot, me)[-1:]


waits_for_the_nearest_alone = patched((coordlock.kernel.acquisition, "blockers", _nearest))


def _reader_first(mine: Mode, other: Any) -> bool:
    return mine is not Mode.PR and (isinstance(other, Permit) or mine.conflicts(other))


lets_readers_pass_writers = patched((coordlock.model.admission, "_conflict", _reader_first))


# Withdrawing, and sending again.


def _held_anyway(self: Grant | AsyncGrant, timeout: float | None = None) -> Steps[bool]:
    yield from self._release(timeout)
    return True


says_held_whatever_has_happened = patched(
    (Ticket, "vanished", nothing),
    (Grant, "release", blocking(_held_anyway)),
    (AsyncGrant, "release", awaiting(_held_anyway)),
)


def _finds_nothing(*arguments: Any, **more: Any) -> Any:
    yield from removal(*arguments, **more)
    return False


takes_its_own_removal_for_another_ones = patched(
    (coordlock.kernel.removal, "removal", _finds_nothing)
)


def _remove_once(call: Callable[[], Any], *_: object, **__: object) -> Any:
    try:
        return (yield call())
    except BackendUnavailable:
        return False


withdraws_once = patched((coordlock.kernel.removal, "removal", _remove_once))

never_looks_for_what_came_late = patched((coordlock.kernel.removal, "_CONFIRMATIONS", ()))

_send = Ticket._send


leaves_its_contenders_when_it_is_closed = patched((Link, "_must_stay", lambda _: False))


def _send_anew(self: Ticket) -> Any:
    if self._attempts:
        self.entry = replace(self.entry, id=uuid.uuid4().hex)  # type: ignore[misc]
    return _send(self)


sends_again_under_another_id = patched((Ticket, "_send", _send_anew))

keeps_its_place_when_it_counts_as_lost = patched((coordlock.kernel.link, "_withdraw", nothing))


# Time.

_beaten = Session._beaten


def _counts_from_the_reply(self: Session, _: float, answer: Any, future: Any) -> None:
    _beaten(self, self._timers.clock.now(), answer, future)


counts_the_time_to_live_from_the_reply = patched((Session, "_beaten", _counts_from_the_reply))

has_no_deadline = patched(
    (Session, "ended", property(lambda self: self._end)),
    (Session, "_watch", nothing),
)

does_not_hear_of_its_own_removal = patched((Ticket, "vanished", nothing))


# etcd.

_watch = coordlock_etcd.requests.watch

watches_from_now_on = patched(
    (coordlock_etcd.requests, "watch", lambda id, key, _, **more: _watch(id, key, 0, **more))
)

_snapshot = coordlock_etcd.requests.snapshot


def _with_revision(
    layout: Any, queue: str, kvs: Any, revision: int, *more: Any, **kw: Any
) -> Snapshot:
    found = _snapshot(layout, queue, kvs, revision, *more, **kw)
    return replace(found, contenders=tuple(replace(c, token=revision) for c in found.contenders))


takes_the_revision_of_the_answer_for_the_token = patched(
    (coordlock_etcd.requests, "snapshot", _with_revision)
)


# ZooKeeper.


def _as_text(sequence: int) -> int:
    return int.from_bytes(str(sequence).encode().ljust(11, b"\0"))


orders_sequences_as_text = patched((coordlock_zookeeper.nodes, "order_of", _as_text))

_survey, _contender = coordlock_zookeeper.nodes.survey, coordlock_zookeeper.nodes.contender


def _name_as_order(child: str) -> int:
    return int.from_bytes(child.encode().ljust(64, b"\0"))


def _survey_by_name(children: Any) -> list[tuple[int, str]]:
    return sorted((_name_as_order(child), child) for _, child in _survey(children))


def _contender_by_name(parent: str, child: str, **options: Any) -> Contender:
    return replace(_contender(parent, child, **options), order=_name_as_order(child))


def _with_guids(numbers: Iterator[int]) -> tuple[object, str, object]:
    """In the place of random ones: ``numbers``, for all clients."""
    return coordlock.kernel.ids.Ids, "__next__", lambda _: f"{next(numbers):032x}"


@contextmanager
def orders_by_the_whole_name() -> Iterator[None]:
    """Names begin with GUIDs; here each of them comes before those that were made earlier."""
    guids = itertools.count(2**127, -1)
    with patched(
        (coordlock_zookeeper.nodes, "survey", _survey_by_name),
        (coordlock_zookeeper.nodes, "contender", _contender_by_name),
        _with_guids(guids),
    )():
        yield


def _look_first(self: Queues, entry: Any) -> Any:
    """`Queues.enqueue` as it would be for whoever takes any node with the right GUID."""
    parent = self._path(entry.queue)
    try:
        listing = yield self._listings.ask(parent)
        found = next(
            child for child in listing.children if coordlock_zookeeper.nodes.has_id(child, entry.id)
        )
        mine = yield promise_of(self._client.exists_async(f"{parent}/{found}"))
        snapshot = yield from self._enqueued(entry, f"{parent}/{found}", mine, listing, False)
    except (coordlock.BackendError, StopIteration):
        snapshot = yield from _enqueue(self, entry)
    return snapshot


_enqueue = Queues.enqueue
_withdraw = Ticket.withdraw


def _stays_in_line(self: Ticket) -> Any:
    return resolved(False) if self.session.ended is not None else _withdraw(self)


@contextmanager
def adopts_the_node_of_an_old_session() -> Iterator[None]:
    """One acquire, the first, keeps its GUID over sessions, and takes what it finds under it."""
    guids = itertools.chain([1, 2, 1], itertools.count(3))
    with patched(
        (Queues, "enqueue", _look_first),
        (Ticket, "withdraw", _stays_in_line),
        _with_guids(guids),
    )():
        yield


takes_the_sequence_for_the_token = patched(
    (Queues, "_token", lambda _, name, __: 1 + (coordlock_zookeeper.nodes.sequence_of(name) or 0))
)

forgets_watches_with_the_connection = patched((Watches, "rearm", nothing))


# The resource.

_take = Resource.take


def _lets_readers_in(self: Resource, request: Request) -> Answer:
    if request.kind is Kind.READ:
        with self._lock:
            return self._accept(request)
    return _take(self, request)


fences_writes_only = patched((Resource, "take", _lets_readers_in))

accepts_any_token = patched((Marks, "admits", lambda *_: True))


# The service as a resource.

_writes, _plan = coordlock_etcd.requests.guarded_writes, coordlock_zookeeper.transactions.plan


def _unguarded(*arguments: Any) -> Any:
    request = _writes(*arguments)
    request.ClearField("compare")
    return request


def _plan_unguarded(*arguments: Any) -> list[Step]:
    return [Step("check", "/"), *_plan(*arguments)[1:]]


commits_without_its_contender = patched(
    (coordlock_etcd.requests, "guarded_writes", _unguarded),
    (coordlock_zookeeper.transactions, "plan", _plan_unguarded),
)
