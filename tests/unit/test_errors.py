from __future__ import annotations

import copy
import inspect
import pickle
import re
from typing import Any

import pytest

from coordlock import errors
from coordlock.errors import (
    AcquireTimeout,
    AlreadyDone,
    AlreadyFailed,
    AlreadyRunning,
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    ClientClosed,
    ConfigurationError,
    CoordlockError,
    DeadlockDetected,
    Evicted,
    InvalidName,
    InvalidToken,
    JobNotRun,
    LockLost,
    NameConflict,
    SessionLost,
    StaleToken,
    TooLarge,
    Unsupported,
    VersionMismatch,
    WaitCancelled,
    WaitError,
    WaitTimeout,
    WaitUnavailable,
    WorkQueueEmpty,
    WorkQueueFull,
)

EXAMPLES: list[CoordlockError] = [
    CoordlockError(),
    ConfigurationError("no such scheme"),
    ConfigurationError.missing("the backend 'etcd' needs grpc", "etcd"),
    InvalidName("x" * 300, "is too long"),
    NameConflict("pool", "a semaphore of 3", "a semaphore of 2", "host:1"),
    WaitTimeout("b", 1.5, kind="barrier", problem="was reached by 2 of 3 parties"),
    AcquireTimeout("orders", 1.25, 2, "host:1 (token 7)"),
    AcquireTimeout("orders", 30.0),
    WaitTimeout("maintenance", 2, kind="gate"),
    WaitError(),
    WaitUnavailable("etcd", "no answer in time", "orders", 1.25),
    WaitUnavailable("etcd", "timed out", "orders", 1.25, 2, "host:1 (token 7)"),
    WaitCancelled("orders", "the window was closed"),
    DeadlockDetected("orders", ("h:1 waits for 'orders', which h:2 holds", "and so on")),
    WaitCancelled("orders", "received SIGTERM", problem="was not upgraded"),
    Evicted("orders"),
    LockLost("orders", 2**63 - 1, "it expired"),
    StaleToken("alice", 33, 34),
    InvalidToken("33"),
    InvalidToken("orders", "is not a sequencer"),
    WorkQueueEmpty("mails", 1.25, 3),
    WorkQueueEmpty("mails", 1.25),
    NameConflict("n", "deleted", "gate", "", "the gate was not deleted: open it"),
    WorkQueueFull("mails", 100),
    AlreadyDone("report", "2026-11-22T02:00:00Z", "host:1"),
    JobNotRun("report", "17"),
    AlreadyFailed("report", "17", "failed", "host:1"),
    AlreadyRunning("report", "17", "host:1 (token 7)"),
    VersionMismatch("/app/config", 2),
    VersionMismatch("/app/config", 0),
    InvalidName("app", "must be an absolute path", "key"),
    Unsupported("the redlock backend keeps no data"),
    ClientClosed(),
    ClientClosed("it belongs to the parent process"),
    BackendError("etcd", "no leader"),
    BackendUnavailable("etcd", "timed out"),
    TooLarge("etcd", "write less at once"),
    AuthenticationFailed("etcd", "permission denied"),
    SessionLost("zookeeper", "it expired"),
]
KINDS = [getattr(errors, name) for name in errors.__all__]


def test_the_diagram_shows_the_tree_as_it_is() -> None:
    assert errors.__doc__ is not None
    parents, drawn = ["CoordlockError"], set()
    for line in errors.__doc__.splitlines():
        if match := re.match(
            r"(?P<indent>[ │├└]+)── (?P<name>\w+)(?: \((?P<others>[\w, ]+)\))?", line
        ):
            depth = len(match["indent"]) // 4
            drawn.add((parents[depth - 1], match["name"], match["others"] or ""))
            parents[depth:] = [match["name"]]
    actual = {
        (
            kind.__bases__[0].__name__,
            kind.__name__,
            ", ".join(base.__name__ for base in kind.__bases__[1:]),
        )
        for kind in KINDS
        if kind is not CoordlockError
    }
    assert drawn == actual


def test_every_error_is_in_the_list() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }
    assert defined == set(errors.__all__)


@pytest.mark.parametrize("token", [10**5000, "9" * 10**6, -(10**5000)], ids=["int", "str", "-int"])
def test_a_huge_token_is_not_shown_in_full(token: object) -> None:
    assert len(str(InvalidToken(token))) < 200


def test_the_examples_cover_every_error() -> None:
    assert {type(example) for example in EXAMPLES} == set(KINDS)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_is_pickled_with_its_fields(error: CoordlockError, protocol: int) -> None:
    error.add_note("seen in the night")
    twin = pickle.loads(pickle.dumps(error, protocol))
    assert type(twin) is type(error)
    assert vars(twin) == vars(error)
    assert str(twin) == str(error)
    assert repr(twin) == repr(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_can_be_copied_raised_and_hashed(error: CoordlockError) -> None:
    twin = copy.copy(error)
    assert vars(twin) == vars(error)
    assert twin != error
    assert len({twin, error}) == 2
    with pytest.raises(type(error)) as caught:
        raise twin
    assert str(caught.value) == str(error)


@pytest.mark.parametrize("error", EXAMPLES[1:], ids=lambda error: type(error).__name__)
def test_the_message_tells_the_fields(error: CoordlockError) -> None:
    fields: dict[str, Any] = vars(error)
    message = str(error)
    for name in set(fields) & {"problem", "extra", "wanted", "found", "holder", "token", "reason"}:
        if fields[name] is not None:
            assert str(fields[name]) in message
    assert "\n" not in message


def test_why_a_lock_was_lost_names_the_lock_once() -> None:
    assert str(LockLost("orders", 7, Evicted("orders").reason)).count("orders") == 1


def test_a_long_name_is_cut_in_messages_and_kept_in_the_field() -> None:
    error = InvalidName("x" * 5000, "is too long")
    assert len(str(error)) < 100
    assert len(error.name) == 5000
