"""The contract on several servers: a lock is what most of them have under one key.

The algorithm is the published one: ask all servers at once; a majority of them, in less than the
time-to-live less a drift, is the lock; else take back what was got, everywhere. No server knows
the others, so there is no order, no number that grows, and nothing that reports a free lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar
from uuid import uuid4

from coordlock.backend import (
    Backend,
    Capabilities,
    ServiceInfo,
    SessionInfo,
    SessionListener,
)
from coordlock.backend.session import OneSession
from coordlock.errors import BackendError, BackendUnavailable, ConfigurationError
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender, Entry, Owner, Snapshot
from coordlock.runtime.clock import Timers
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, all_of, failed, in_thread, resolved
from coordlock.settings import TLS_OPTIONS, Option, Settings
from coordlock_redis import access
from coordlock_redis.errors import client_closed
from coordlock_redis.options import DB, delay_or_auto, restart_delay
from coordlock_redis.pipeline import IOThread, Pipeline
from coordlock_redis.redlock.nodes import SERVICE, Node, described
from coordlock_redis.requests import MICROSECONDS, Argument, Request, ScriptContext
from coordlock_redis.scripts import files
from coordlock_redis.servers import Connection

__all__ = ["RedlockBackend"]

T = TypeVar("T")

#: Fewer have no majority without one of them.
_FEWEST: Final = 3
#: A server has this part of the time-to-live to answer: a slow one must not cost the lock.
_PATIENCE: Final = 0.1
#: By how much two clocks may run apart in the time-to-live: a part of it, and seconds.
_DRIFT: Final = (0.01, 0.002)


_OPTIONS: Final[Sequence[Option]] = (
    DB,
    Option(
        "restart_delay",
        delay_or_auto,
        "auto",
        "How long a server has no vote after its restart; auto: for the ttl.",
    ),
    *TLS_OPTIONS,
)
_SCRIPT: Final = files("coordlock_redis.redlock", "operations")


class _Header(ScriptContext):
    """What the script of this module is given: when the server counts."""

    def arguments(self, name: str, connection: Connection) -> tuple[Argument, ...]:
        return 0, name, connection.started + int((self.delay or 0) * MICROSECONDS)


class _Held(NamedTuple):
    """A lock that the client has."""

    queue: str
    key: bytes
    value: bytes


class RedlockBackend(Backend):
    """Locks in several Redis that know nothing of each other: see this module."""

    scheme: ClassVar[str] = SERVICE
    capabilities: ClassVar[Capabilities] = Capabilities(
        reach="cluster", leased=True, durable=False, ordered=False, fenced=False, one_step="all"
    )
    options: ClassVar[Sequence[Option]] = _OPTIONS
    shares_keys: ClassVar[bool] = False
    default_port: ClassVar[int] = 6379

    def __init__(
        self, nodes: Sequence[Node], prefix: bytes, ttl: float, delay: float, timers: Timers
    ) -> None:
        self._servers: Final = nodes
        self._prefix: Final = prefix
        self._ttl: Final = ttl
        self._delay: Final = delay
        #: What a heartbeat certainly extends the session by.
        self._certain: Final = ttl - ttl * _DRIFT[0] - _DRIFT[1]
        self._majority: Final = len(nodes) // 2 + 1
        context, clock = _Header(prefix, "", delay, ttl), timers.clock
        # A thread for each, because it waits while its server is silent to a new connection.
        self._threads: Final = [IOThread(clock, node.timeout) for node in nodes]
        self._nodes: Final = [
            Pipeline(thread, node, context, clock, node.timeout)
            for thread, node in zip(self._threads, nodes, strict=True)
        ]
        self._lock: Final = threading.RLock()
        self._held: dict[str, _Held] = {}
        #: What the client asks for.
        self._asked: dict[str, _Held] = {}
        #: How many heartbeats were sent.
        self._heartbeats = 0
        self._session: OneSession[str] = OneSession(SERVICE, self._lock)
        self._closing: Promise[None] | None = None

    @classmethod
    def configure(cls, settings: Settings, client: object | None = None, *, timers: Timers) -> Self:
        if client is not None:
            raise ConfigurationError("redlock:// needs several servers, and takes no client")
        if len(set(settings.hosts)) < max(_FEWEST, len(settings.hosts)):
            raise ConfigurationError(
                f"redlock:// needs {_FEWEST} or more different servers, best 5, and not "
                f"{', '.join(settings.hosts) or 'none'}: redlock://redis1,redis2,redis3"
            )
        timeout = min(settings.request_timeout, settings.ttl * _PATIENCE)
        tls = settings.options["tls"]
        prefix = access.prefix(settings.root) + b"lock:"
        nodes: list[Node] = []
        for host in settings.hosts:
            how = access.by_url(replace(settings, hosts=(host,)), tls=tls)
            nodes.append(Node(prefix, timeout, timers.clock, _SCRIPT, **how, nodes=nodes))
        delay = restart_delay(settings)
        return cls(nodes, prefix, settings.ttl, settings.ttl if delay is None else delay, timers)

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        return run_in_background(self._opening(listener))

    def _opening(self, listener: SessionListener) -> Steps[SessionInfo]:
        session = uuid4().hex[:16]
        self._held = {}
        ttl = yield self._extend(session)
        if not self._session.begin(session, listener):
            raise client_closed()
        return SessionInfo(session, ttl)

    def heartbeat(self) -> Promise[float]:
        session = self._session.current
        return self._extend(session) if session else failed(self._session.missing())

    def _extend(self, session: str) -> Promise[float]:
        """Extend what is held; for how many seconds that is certain. Any majority may answer."""
        with self._lock:
            self._heartbeats += 1
            held = self._held.copy()
            arguments: list[Argument] = [self._milliseconds]
            for each in held.values():
                arguments += (each.key, each.value)
            # Under the lock: none of them is deleted before.
            answers = self._ask("extend", arguments, lambda answer: answer[1:])

        def decide(came: list[Any], failures: list[BackendError]) -> Promise[float] | None:
            counts = dict(zip(held, map(sum, zip(*came, strict=True)), strict=False))
            # Some were released meanwhile.
            kept = [id for id in counts if id in self._held]
            missing = [id for id in kept if counts[id] < self._majority]
            if len(came) >= self._majority and not missing:
                return resolved(self._certain)
            out_of = len(self._servers)
            for id in missing:
                without = len(came) - counts[id]
                if without > out_of - self._majority:
                    reason = (
                        f"{without} of {out_of} servers have lost the lock {held[id].queue!r}: "
                        "they were restarted, or their clocks went wrong"
                    )
                    return failed(self._session.lose(session, reason))
            if len(came) + len(failures) < out_of:
                return None
            return failed(self._unavailable(failures))

        return _decided(answers, decide)

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        [entry] = entries
        with self._lock:
            if not (session := self._session.current):
                return failed(self._session.missing())
            key = self._prefix + entry.queue.encode("utf-8", "surrogatepass")
            value = f"{entry.id} {session} ".encode() + entry.owner.encode()
            self._asked[entry.id] = mine = _Held(entry.queue, key, value)
            heartbeats = self._heartbeats
            arguments = (key, value, self._milliseconds)
            answers = self._ask("lock", arguments, lambda answer: bytes(answer[1]))

        def decide(
            came: list[bytes], failures: list[BackendError]
        ) -> Promise[tuple[Snapshot, ...]] | None:
            votes = came.count(value)
            if votes >= self._majority:
                with self._lock:
                    if session != self._session.current:
                        return failed(self._session.missing())
                    if heartbeats == self._heartbeats:
                        self._held[entry.id] = mine
                        del self._asked[entry.id]
                        found = _contender(entry.queue, value)
                        return resolved((Snapshot(entry.queue, (found,)),))
                # The votes may end before the session, whose heartbeat has not extended them.
                return self.enqueue(entries)
            left = len(self._servers) - len(came) - len(failures)
            if votes + left >= self._majority:
                return None
            self._delete(entry)
            others = sorted(set(came) - {value}, key=came.count)
            if not others:
                return failed(self._unavailable(failures))
            blocking = tuple(_contender(entry.queue, other) for other in others)
            return resolved((Snapshot(entry.queue, blocking),))

        return _decided(answers, decide)

    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        [entry] = entries

        def decide(came: list[int], failures: list[BackendError]) -> Promise[bool] | None:
            if sum(came) >= self._majority:
                return resolved(True)
            if came.count(0) > len(self._servers) - self._majority:
                return resolved(False)
            if len(came) + len(failures) < len(self._servers):
                return None
            # Those that are silent may have had it.
            return self._silence(failures) or resolved(True)

        return _decided(self._delete(entry), decide)

    def describe(self) -> Promise[ServiceInfo]:
        if self._closing is not None:
            return failed(client_closed())
        return in_thread(
            "coordlock-redis-describe", partial(described, self._servers, self._ttl, self._delay)
        )

    def close(self) -> Promise[None]:
        with self._lock:
            if self._closing is not None:
                return self._closing
            self._closing = closing = Promise[None]()
            self._session.forget(closes=True)
            arguments: list[Argument] = [
                word for id, held in (self._held | self._asked).items() for word in (held.key, id)
            ]
        if arguments:
            self._ask("unlock", arguments, lambda _: None)
        ended = all_of(thread.close() for thread in self._threads)
        ended.add_done_callback(lambda _: closing.resolve(None))
        return closing

    @property
    def _milliseconds(self) -> int:
        return int(self._ttl * 1000)

    def _delete(self, entry: Entry) -> list[Promise[int]]:
        key = self._prefix + entry.queue.encode("utf-8", "surrogatepass")
        with self._lock:
            self._held.pop(entry.id, None)
            self._asked.pop(entry.id, None)
            return self._ask("unlock", [key, entry.id], lambda answer: int(answer[1]))

    def _ask(
        self, script: str, arguments: Sequence[Argument], read: Callable[[list[Any]], T]
    ) -> list[Promise[T]]:
        """Ask every server."""
        return [node.ask(Request(script, arguments, read)) for node in self._nodes]

    def _silence(self, failures: list[BackendError]) -> Promise[Any] | None:
        """The failure of all, if too many have failed for a majority to answer."""
        if len(self._servers) - len(failures) >= self._majority:
            return None
        return failed(self._unavailable(failures))

    def _unavailable(self, failures: Sequence[BackendError]) -> BackendError:
        """Why no majority answered; only one that waiting may mend is a `BackendUnavailable`."""
        refusals = [error for error in failures if not isinstance(error, BackendUnavailable)]
        if len(self._servers) - len(refusals) < self._majority:
            return refusals[0]
        reasons = "; ".join(dict.fromkeys(error.reason for error in failures))
        return BackendUnavailable(SERVICE, f"no majority of the servers answers: {reasons}")


def _decided(
    answers: Sequence[Promise[T]],
    decide: Callable[[list[T], list[BackendError]], Promise[Any] | None],
) -> Promise[Any]:
    """What ``decide`` makes of the answers and failures so far, once that is not None."""
    came: list[T] = []
    failures: list[BackendError] = []
    lock = threading.RLock()
    promise: Promise[Any] = Promise()
    is_decided = False

    def arrived(answer: Promise[T]) -> None:
        nonlocal is_decided
        with lock:
            error = answer.exception()
            if error is None:
                came.append(answer.result())
            elif isinstance(error, BackendError):
                failures.append(error)
            else:
                promise.fail(error)
            if is_decided or (outcome := decide(came, failures)) is None:
                return
            is_decided = True
        outcome.add_done_callback(promise.follow)

    for answer in answers:
        answer.add_done_callback(arrived)
    return promise


def _contender(queue: str, value: bytes) -> Contender:
    id, _, rest = value.partition(b" ")
    session, _, owner = rest.partition(b" ")
    name = id.decode("utf-8", "replace")
    return Contender(
        id=name,
        key=f"{queue}/{name}",
        claim=Mode.EX,
        order=1,
        session=session.decode("utf-8", "replace"),
        owner=Owner.decode(owner),
    )
