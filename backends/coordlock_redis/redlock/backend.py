"""The contract on several servers: a lock is what most of them have under one key.

The algorithm is the published one: ask all servers at once; a majority of them, in less than the
time-to-live less a drift, is the lock; else take back what was got, everywhere. No server knows
the others, so there is no order, no number that grows, and nothing that reports a free lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, Self, TypeVar
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
from coordlock.runtime.promise import Promise, all_of, failed, in_thread, resolved
from coordlock.settings import TLS_OPTIONS, Option, Settings
from coordlock_redis import access
from coordlock_redis.errors import client_closed
from coordlock_redis.options import DB, delay_or_auto, restart_delay
from coordlock_redis.redlock.nodes import SERVICE, Node, Runs, described
from coordlock_redis.request_thread import RequestThread
from coordlock_redis.requests import MICROSECONDS, Request, ScriptContext, Word
from coordlock_redis.scripts import files
from coordlock_redis.servers import Connection

__all__ = ["RedlockBackend"]

T = TypeVar("T")

#: Fewer have no majority without one of them.
_FEWEST: Final = 3
#: A server has this part of the time-to-live to answer: a slow one must not cost the lock.
_PATIENCE: Final = 0.1
#: An acquire may take this part of it; until then it shortens what a heartbeat extends.
_ACQUIRE: Final = 0.5
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

    def arguments(self, name: str, connection: Connection) -> tuple[Word, ...]:
        return 0, name, connection.started + int(self.delay * MICROSECONDS)


@dataclass(slots=True)
class _Held:
    """A key that the client has, or asks for."""

    queue: str
    key: bytes
    value: bytes
    #: When it was asked for: no server lets it expire before a time-to-live after that.
    since: float
    is_asked: bool = True


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
        self._drift: Final = ttl * _DRIFT[0] + _DRIFT[1]
        self._longest: Final = ttl * _ACQUIRE
        self._majority: Final = len(nodes) // 2 + 1
        self._clock: Final = timers.clock
        context = _Header(prefix, "", delay, delay)
        self._nodes: Final = [
            RequestThread(node, context, timers.clock, node.timeout) for node in nodes
        ]
        self._lock: Final = threading.RLock()
        self._held: dict[str, _Held] = {}
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
        runs = Runs()
        nodes = []
        for host in settings.hosts:
            alone = replace(settings, hosts=(host,))
            node = access.servers(alone, None, timers.clock, _SCRIPT, tls=tls)
            fields = vars(node) | {"timeout": timeout}
            nodes.append(Node(**fields, runs=runs))
        return cls(
            nodes,
            access.prefix(settings.root) + b"lock:",
            settings.ttl,
            restart_delay(settings),
            timers,
        )

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        session = uuid4().hex[:16]

        def decide(came: list[Any], failures: list[BackendError]) -> Promise[SessionInfo] | None:
            if len(came) >= self._majority:
                if not self._session.begin(session, listener):
                    return failed(client_closed())
                return resolved(SessionInfo(session, self._ttl - self._drift))
            return self._silence(failures)

        self._held = {}
        return _decided(self._ask("extend", [self._milliseconds], lambda answer: None), decide)

    def heartbeat(self) -> Promise[float]:
        with self._lock:
            if not (session := self._session.current):
                return failed(self._session.missing())
            # In this order, because an acquire may be granted in between: one that is too old now
            # is never granted later, and one that is granted here is in both lists.
            now = self._clock.now()
            asked = [key for key in self._held.values() if key.is_asked]
            held = {id: key for id, key in self._held.items() if not key.is_asked}
            # The session's next deadline is theirs, too. Those who answer this need not be those
            # that vote for them, so it counts from when they were asked for.
            ages = [now - key.since for key in asked]
            late = max([age for age in ages if age < self._longest], default=0.0)
            certain = self._ttl - self._drift - late
            arguments: list[Word] = [self._milliseconds]
            for each in (*held.values(), *asked):
                arguments += (each.key, each.value)
            # Under the lock: none of them is deleted before.
            answers = self._ask("extend", arguments, lambda answer: answer[1:])

        def decide(came: list[Any], failures: list[BackendError]) -> Promise[float] | None:
            counts = dict(zip(held, map(sum, zip(*came, strict=True)), strict=False))
            few = [id for id, count in counts.items() if count < self._majority]
            missing = [id for id in few if id in self._held]  # others were released meanwhile
            if len(came) >= self._majority and not missing:
                return resolved(certain)
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
            return self._silence(failures) or failed(self._unavailable(failures))

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
            # Before it is sent, so that a heartbeat meanwhile extends it.
            asked = _Held(entry.queue, key, value, self._clock.now())
            mine = self._held.setdefault(entry.id, asked)
            arguments = (key, value, self._milliseconds)
            answers = self._ask("lock", arguments, lambda answer: bytes(answer[1]))

        def decide(
            came: list[bytes], failures: list[BackendError]
        ) -> Promise[tuple[Snapshot, ...]] | None:
            votes = came.count(value)
            if votes >= self._majority:
                mine.is_asked = False  # before the look at the clock: see `heartbeat`
            took = self._clock.now() - mine.since
            if votes >= self._majority and took < self._longest:
                if session != self._session.current:
                    return failed(self._session.missing())
                found = _contender(entry.queue, value)
                return resolved((Snapshot(entry.queue, (found,)),))
            left = len(self._servers) - len(came) - len(failures)
            if votes + left >= self._majority and votes < self._majority:
                return None
            self._delete([entry])
            others = sorted(set(came) - {value}, key=came.count)
            if not others:
                if votes >= self._majority:
                    failures = [BackendUnavailable(SERVICE, f"the servers took {took:.1f} s")]
                return failed(self._unavailable(failures))
            blocking = tuple(_contender(entry.queue, other) for other in others)
            return resolved((Snapshot(entry.queue, blocking),))

        return _decided(answers, decide)

    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        def decide(came: list[int], failures: list[BackendError]) -> Promise[bool] | None:
            full = sum(count == len(entries) for count in came)
            if full >= self._majority:
                return resolved(True)
            if len(came) - full > len(self._servers) - self._majority:
                return resolved(False)
            if len(came) + len(failures) < len(self._servers):
                return None
            # Those that are silent may have had it.
            return self._silence(failures) or resolved(True)

        return _decided(self._delete(entries), decide)

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
            arguments: list[Word] = [
                word for id, held in self._held.items() for word in (held.key, id)
            ]
        ended = all_of(
            node.close(Request("unlock", arguments, lambda _: None)) for node in self._nodes
        )
        ended.add_done_callback(lambda _: closing.resolve(None))
        return closing

    @property
    def _milliseconds(self) -> int:
        return int(self._ttl * 1000)

    def _delete(self, entries: Sequence[Entry]) -> list[Promise[int]]:
        arguments: list[Word] = []
        with self._lock:
            for entry in entries:
                self._held.pop(entry.id, None)
                arguments += (self._prefix + entry.queue.encode("utf-8", "surrogatepass"), entry.id)
            return self._ask("unlock", arguments, lambda answer: int(answer[1]))

    def _ask(
        self, script: str, arguments: Sequence[Word], read: Callable[[list[Any]], T]
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
