"""Batches under faults that a real etcd shows at no certain moment; a store stands in for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import coordlock_etcd
import pytest
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests, rpc
from coordlock_etcd.errors import NoSpace, NotPermitted
from coordlock_etcd.transport.call import settle
from coordlock_etcd.transport.connection import Connection
from coordlock_etcd.transport.sending import Batches

from coordlock.errors import AuthenticationFailed, BackendError, BackendUnavailable, TooLarge
from coordlock.runtime.promise import Promise
from tests.unit.signals import Signal

#: Seconds that each request may take.
TIMEOUT = 1000.0

Message = Callable[[], tuple[rpc.Method[Any, Any], pb.TxnRequest]]


class Sending:
    """One call, from when it was handed over until it is answered."""

    def __init__(self, message: Message, read: Callable[[Any], Any], store: set[bytes]) -> None:
        self.message = message
        self.promise: Promise[Any] = Promise()
        self._read = read
        self._store = store

    @property
    def keys(self) -> list[bytes]:
        """What it deletes; from now on it is on its way."""
        _, request = self.message()
        return [one.request_delete_range.key for one in request.success]

    def succeed(self) -> None:
        deleted = [pb.DeleteRangeResponse(deleted=self._delete(key)) for key in self.keys]
        answers = [pb.ResponseOp(response_delete_range=one) for one in deleted]
        reply = pb.TxnResponse(succeeded=True, responses=answers)
        settle(self.promise, self._read, reply)

    def _delete(self, key: bytes) -> int:
        was_there = key in self._store
        self._store.discard(key)
        return int(was_there)


class Wire:
    """Where batches are handed over to, in place of a connection."""

    def __init__(self) -> None:
        self.store: set[bytes] = set()
        self.sent: list[Sending] = []

    def send(
        self, message: Message, read: Callable[[Any], Any], *, timeout: float, once: bool
    ) -> Promise[Any]:
        assert once
        self.sent.append(Sending(message, read, self.store))
        return self.sent[-1].promise

    def call(
        self, method: Any, request: Any, read: Callable[[Any], Any], *, timeout: float, once: bool
    ) -> Promise[Any]:
        assert 0 < timeout <= TIMEOUT
        return self.send(lambda: (method, request), read, timeout=timeout, once=once)


class Deletions:
    """Who asks."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.batches: Batches[bool] = Batches(cast(Connection, self.wire))

    def ask(self, name: str, place: str = "", timeout: float = TIMEOUT) -> Promise[bool]:
        request = requests.delete_all({name.encode(): None})
        return self.batches.call(place or name, request, requests.has_deleted_all, timeout)


@pytest.fixture
def deletions() -> Deletions:
    return Deletions()


def test_who_comes_when_a_batch_is_on_its_way_goes_with_the_next(deletions: Deletions) -> None:
    first, second = deletions.ask("a"), deletions.ask("b")
    assert deletions.wire.sent[0].keys == [b"a", b"b"]
    third = deletions.ask("c")
    # Sent once more, to another member: it is the same.
    assert deletions.wire.sent[0].keys == [b"a", b"b"]
    assert deletions.wire.sent[1].keys == [b"c"]
    for sending in deletions.wire.sent:
        sending.succeed()
    assert not any(one.result(0) for one in (first, second, third))


def test_a_batch_that_was_never_sent_takes_nobody_along(deletions: Deletions) -> None:
    asked = deletions.ask("a")
    error = AuthenticationFailed("etcd", "no login")
    deletions.wire.sent[0].promise.fail(error)
    assert asked.exception(0) is error
    again = deletions.ask("b")
    deletions.wire.sent[1].succeed()
    assert again.result(0) is False


@pytest.mark.parametrize(
    "error",
    [
        BackendUnavailable("etcd", "no answer"),
        AuthenticationFailed("etcd", "no login"),
        NoSpace("etcd", "space exceeded"),
    ],
)
def test_doubt_is_told_to_all_and_nothing_is_sent_again(
    deletions: Deletions, error: BackendError
) -> None:
    asked = [deletions.ask(name) for name in "abc"]
    deletions.wire.sent[0].promise.fail(error)
    assert [one.exception(0) for one in asked] == [error] * 3
    assert len(deletions.wire.sent) == 1


def test_one_that_is_refused_alone_is_not_sent_again(deletions: Deletions) -> None:
    asked = deletions.ask("a")
    error = NotPermitted("etcd", "not you")
    deletions.wire.sent[0].promise.fail(error)
    assert asked.exception(0) is error
    assert len(deletions.wire.sent) == 1


def test_when_one_is_refused_each_is_sent_alone(deletions: Deletions) -> None:
    deletions.wire.store.update((b"a", b"b"))
    asked = [deletions.ask(name) for name in "ab"]
    deletions.wire.sent[0].promise.fail(NotPermitted("etcd", "not both"))
    first, second = deletions.wire.sent[1:]
    assert (first.keys, second.keys) == ([b"a"], [b"b"])
    error = NotPermitted("etcd", "not you")
    first.promise.fail(error)
    second.succeed()
    assert asked[0].exception(0) is error
    assert asked[1].result(0)


def test_batches_get_smaller_when_one_was_too_large(deletions: Deletions) -> None:
    for number in range(8):
        deletions.ask(f"a{number}")
    deletions.wire.sent[0].promise.fail(TooLarge("etcd", "too many operations"))
    assert len(deletions.wire.sent) == 1 + 8
    for number in range(8):
        deletions.ask(f"b{number}")
    assert [len(sending.keys) for sending in deletions.wire.sent[9:]] == [4, 4]


def test_an_answer_that_makes_no_sense_is_believed_by_nobody(deletions: Deletions) -> None:
    asked = [deletions.ask(name) for name in "ab"]
    sending = deletions.wire.sent[0]
    nonsense = [pb.ResponseOp(response_delete_range=pb.DeleteRangeResponse(deleted=1))]
    settle(sending.promise, sending._read, pb.TxnResponse(succeeded=True, responses=nonsense))
    assert not any(one.done() for one in asked)
    for alone in deletions.wire.sent[1:]:
        alone.succeed()
    assert not any(one.result(0) for one in asked)


def test_a_signal_handler_may_ask_at_any_moment_of_asking() -> None:
    for moment in itertools.count(1):
        deletions = Deletions()
        asked = [deletions.ask("first")]
        handler = partial(lambda me, all: all.append(me.ask("theirs", "q")), deletions, asked)
        with Signal(moment, handler, within=coordlock_etcd) as signal:
            mine = deletions.ask("mine", "q")
        for sending in deletions.wire.sent:
            sending.succeed()
        assert [one.result(0) for one in (*asked, mine)] == [False] * (len(asked) + 1)
        if not signal.came:
            break
    assert moment > 4
