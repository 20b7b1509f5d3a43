"""``coordlock doctor``: is everything in order, and if not, what to do about it."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from coordlock.backend import Backend, Delete, Expect, Put
from coordlock.backend.config import NOT_CONFIGURED
from coordlock.backend.registry import backend_for_scheme
from coordlock.cli.connection import Service, connected
from coordlock.cli.exits import Exit, status_of
from coordlock.cli.job_health import health_of, present_of
from coordlock.cli.kept import work_queues
from coordlock.cli.text import (
    coloured,
    echo,
    folded,
    listed,
    milliseconds,
    printable,
    terminal_width,
)
from coordlock.client import Client
from coordlock.errors import (
    AuthenticationFailed,
    BackendUnavailable,
    CoordlockError,
    Unsupported,
    VersionMismatch,
    WaitUnavailable,
)
from coordlock.runtime.driver import Steps, run
from coordlock.runtime.log import flush
from coordlock.settings import COMMON_OPTIONS, Settings
from coordlock.settings.sources import DEFAULT_ORIGIN

__all__ = ["doctor"]

#: How often the round trip is measured.
_SAMPLES: Final = 20
#: A time-to-live should be this many times the slowest answer. Heartbeats come at a third of it
#: and are sent again at tenths, so that three may fail before the lease does.
_TTL_PER_ANSWER: Final = 10

_REACHES: Final = {
    "process": "threads of one process",
    "machine": "only processes of this machine that use the same state directory",
    "cluster": "all clients of the cluster",
}


#: In fewer columns details stand below their topic.
_NARROW: Final = 72

State = Literal["ok", "note", "warning", "failed"]

_COLOURS: Final[dict[State, str]] = {
    "ok": "green",
    "note": "cyan",
    "warning": "yellow",
    "failed": "red",
}
_REACH_STATES: Final[dict[str, State]] = {"process": "warning", "machine": "note", "cluster": "ok"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    topic: str
    state: State
    detail: str
    advice: str = ""


def doctor(*, service: Service, as_json: bool) -> int:
    """Check the configuration, the service, a lock and data.

    The exit status is 0 when all is well, warnings included; 69 when the service cannot be
    reached, 77 when it refuses the credentials, 78 when the configuration cannot be used.
    """
    findings: list[Finding] = []
    status = Exit.OK
    try:
        for finding in _examine(service):
            findings.append(finding)
            if not as_json:
                _print(finding)
            if finding.state == "failed":
                status = Exit.FAILED
    except CoordlockError as error:
        status = status_of(error)
        finding = Finding(_topic(error), "failed", str(error), _advice(error))
        findings.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        document = {
            "ok": status is Exit.OK,
            "findings": [dataclasses.asdict(finding) for finding in findings],
        }
        echo(json.dumps(document))
    return status


def _examine(service: Service) -> Iterator[Finding]:
    settings = service.settings(alone=True)
    yield _configuration(settings)
    yield from _variables(settings)
    yield _reach(settings)
    if not hasattr(time, "CLOCK_BOOTTIME") and sys.platform != "darwin":
        detail = "CLOCK_MONOTONIC: may stand still in a suspend, while leases run out"
        yield Finding("clock", "note", detail)
    started = time.perf_counter()
    with _logged() as warnings:
        with connected(settings) as client:
            took = time.perf_counter() - started
            yield Finding("connection", "ok", f"a session was opened in {milliseconds(took)}")
            yield from _service(client)
            yield from _self_test(client, settings)
            yield from _data(client)
        flush()
        for text in dict.fromkeys(warnings):
            yield Finding("log", "warning", text)


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def _logged() -> Iterator[list[str]]:
    """The warnings that the library logs meanwhile, such as that no password is asked for."""
    handler = _Warnings()
    logger = logging.getLogger("coordlock")
    logger.addHandler(handler)
    try:
        yield handler.texts
    finally:
        logger.removeHandler(handler)


def _configuration(settings: Settings) -> Finding:
    user = f", user {settings.username}" if settings.username else ""
    detail = f"{settings}{user} (from {settings.origin or '--url'})"
    if settings.origin == DEFAULT_ORIGIN:
        return Finding("configuration", "warning", detail, NOT_CONFIGURED)
    return Finding("configuration", "ok", detail)


def _variables(settings: Settings) -> Iterator[Finding]:
    """Variables that somebody has set for an option, which nothing reads."""
    options = {
        option.name for option in (*COMMON_OPTIONS, *backend_for_scheme(settings.scheme).options)
    }
    options |= {"hosts", "root", "username", "password", "password_file"}
    options.remove("reach")
    for name in sorted(f"COORDLOCK_{option.upper()}" for option in options):
        if name in os.environ:
            detail = f"nothing reads {name}"
            advice = "write it into COORDLOCK_URL, as in etcd://host1:2379?ttl=15s, or into a file"
            yield Finding("variable", "warning", detail, advice)


def _reach(settings: Settings) -> Finding:
    reach = backend_for_scheme(settings.scheme).capabilities.reach
    return Finding("reach", _REACH_STATES[reach], f"locks exclude {_REACHES[reach]}")


def _service(client: Client) -> Iterator[Finding]:
    info = client.admin.describe()
    where = f" at {', '.join(info.endpoints)}" if info.endpoints else ""
    yield Finding("service", "ok", f"{info.service} {info.version}".rstrip() + where)
    for note in info.notes:
        yield Finding("service", "ok", note)
    for warning in info.warnings:
        yield Finding("service", "warning", warning)


def _self_test(client: Client, settings: Settings) -> Iterator[Finding]:
    """A lock on a name that is not in use: acquired, refused, released, acquired again."""
    lock = client.lock(f"doctor-{uuid.uuid4().hex}")
    can = backend_for_scheme(settings.scheme).capabilities
    ask = lock.contenders if can.ordered else lambda: client._engine.backend.heartbeat().result()
    times = [_timed(ask) for _ in range(_SAMPLES)]
    median, slowest = statistics.median(times), max(times)
    yield Finding(
        "round trip",
        "ok",
        f"{milliseconds(median)} median, {milliseconds(slowest)} slowest of {_SAMPLES} reads",
    )
    started = time.perf_counter()
    try:
        first = lock.acquire(settings.request_timeout)
    except WaitUnavailable as error:
        advice = "the service answers, but grants nothing yet: run `coordlock doctor` again later"
        yield Finding("lock", "failed", str(error), advice)
        return
    lease = first.remaining()
    refused = lock.try_acquire() is None
    released = first.release()
    took = time.perf_counter() - started
    second = lock.acquire(settings.request_timeout)
    second.release()
    yield _ttl(settings.ttl, lease, slowest)
    detail = f"acquired, exclusive and released in {milliseconds(took)}"
    if not (refused and released):
        detail = f"exclusive: {refused}, held until released: {released}"
    elif not can.fenced:
        yield Finding("lock", "note", f"{detail}; there are no tokens, so nothing can be fenced")
        return
    elif second.token > first.token:
        yield Finding("lock", "ok", f"{detail}; tokens grow")
        return
    else:
        detail = f"tokens {first.token} and then {second.token}"
    yield Finding("lock", "failed", detail, "this service must not be used for locks")


def _data(client: Client) -> Iterator[Finding]:
    """Whether values can be kept, on a key that is not in use; and what is stuck of what is."""
    engine = client._engine
    try:
        engine.backend.require("data")
    except Unsupported as error:
        yield Finding("data", "note", str(error))
        return
    key = f"{engine.data_root}/@doctor-{uuid.uuid4().hex}"
    started = time.perf_counter()
    try:
        wrong = run(engine.bounded(_trial(engine.backend, key)))
    except AuthenticationFailed as error:
        advice = "values, counters, barriers and work queues need the right to write there"
        yield Finding("data", "warning", str(error), advice)
        return
    if wrong:
        yield Finding("data", "failed", wrong, "this service must not be used for values")
    else:
        took = milliseconds(time.perf_counter() - started)
        yield Finding("data", "ok", f"written, compared, read and deleted in {took}")
    yield from _dead_items(client)
    yield from _jobs(client)


def _trial(service: Backend, key: str) -> Steps[str]:
    """What goes wrong with ``key``; empty where nothing does."""
    try:
        yield service.write([Expect(key, 0), Put(key, b"one")])
        try:
            yield service.write([Expect(key, 0), Put(key, b"another")])
        except VersionMismatch:
            pass
        else:
            return "a write that expected another version was made"
        yield service.write([Expect(key, 1), Put(key, b"two")])
        found = (yield service.read(key)).values.get(key)
        if found is None or (found.data, found.version) != (b"two", 2):
            return f"what was written is not what is read: {found}"
    finally:
        yield service.write([Delete(key)])
    found = (yield service.read(key)).values.get(key)
    return "" if found is None else "what was deleted is still there"


def _dead_items(client: Client) -> Iterator[Finding]:
    """The work queues with items that nobody takes any more."""
    queues = work_queues(client)
    damaged = [repr(one.name) for one in queues if one.state is None]
    dead = [
        f"{one.name!r} ({one.state['dead']})" for one in queues if one.state and one.state["dead"]
    ]
    if damaged:
        detail = f"not as this release of coordlock writes them: {listed(damaged)}"
        advice = "`coordlock queue ls NAME` tells why"
        yield Finding("work queues", "warning", detail, advice)
    if dead:
        detail = f"dead items, which nobody takes any more, in {listed(dead)}"
        advice = "`coordlock queue ls NAME --dead` tells why, `coordlock queue retry` revives them"
        yield Finding("work queues", "warning", detail, advice)
    elif queues and not damaged:
        yield Finding("work queues", "ok", f"{len(queues)}, without dead items")


def _jobs(client: Client) -> Iterator[Finding]:
    """The jobs whose last slot has failed, and those that no host has started in time."""
    if not (jobs := client.admin.jobs()):
        return
    now = present_of(client)  # which writes, on some services
    for job in jobs:
        health = health_of(job, now)
        if health.state != "ok":
            advice = f"`coordlock jobs show {job.name}` shows more; `coordlock delete` forgets it"
            yield Finding("jobs", "warning", f"{job.name!r} {health.state}: {health.text}", advice)
    if all(health_of(job, now).state == "ok" for job in jobs):
        yield Finding("jobs", "ok", f"{len(jobs)}, which do their work")


def _ttl(asked: float, lease: float, slowest: float) -> Finding:
    if lease == math.inf:
        return Finding("time-to-live", "ok", "none: a lock ends with its process, at once")
    # Just connected, so that next to nothing of the lease has passed.
    needed = slowest * _TTL_PER_ANSWER
    if lease < needed:
        return Finding(
            "time-to-live",
            "warning",
            f"{lease:.1f} s, while the slowest answer took {milliseconds(slowest)}",
            f"use ttl={math.ceil(needed)}s or more, so that slow answers don't lose locks",
        )
    if not asked * 0.6 < lease <= asked + 0.5:
        return Finding(
            "time-to-live",
            "warning",
            f"the server grants about {lease:.1f} s, not the {asked:g} s that are configured",
            "its own limits decide; see the documentation of the backend",
        )
    return Finding(
        "time-to-live", "ok", f"{asked:g} s, {asked / slowest:.0f} times the slowest answer"
    )


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _topic(error: CoordlockError) -> str:
    return {Exit.CONFIG: "configuration", Exit.NO_PERMISSION: "credentials"}.get(
        status_of(error), "connection"
    )


def _advice(error: CoordlockError) -> str:
    match status_of(error):
        case Exit.NO_PERMISSION:
            return "check the user and the password in the configuration, and the user's rights"
        case Exit.UNAVAILABLE if isinstance(error, BackendUnavailable):
            return (
                "check that the service runs, that host and port are right, that no firewall is "
                "between, and that tls is set as the server has it"
            )
    return ""


def _print(finding: Finding) -> None:
    word = "FAILED" if finding.state == "failed" else finding.state
    mark = coloured(word.ljust(7), _COLOURS[finding.state])
    width = terminal_width()
    is_narrow = width < _NARROW
    margin = 9 if is_narrow else 23
    lines = [finding.topic] if is_narrow else []
    for text in (finding.detail, finding.advice):
        lines += folded(printable(text), width, taken=margin, indent=margin)
    if not is_narrow:
        lines[0] = f"{finding.topic:<14}{lines[0]}"
    echo(f"{mark}  " + f"\n{' ' * margin}".join(lines))
