"""A lock service for one test, with its clock, its silences and its losses in the test's hand."""

from __future__ import annotations

import heapq
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, Unpack
from weakref import WeakSet

from coordlock_memory import Faults, MemoryBackend, MemoryService

from coordlock.backend.config import configure
from coordlock.client import Client, connect
from coordlock.client import client as client_module
from coordlock.errors import ClientClosed
from coordlock.kernel.access import close
from coordlock.kernel.engine import Engine
from coordlock.locks.grant import Grant
from coordlock.model.claim import Mode
from coordlock.runtime.clock import SYSTEM_CLOCK, SystemTimers, Timer
from coordlock.runtime.deadline import Cancellation, Deadline
from coordlock.runtime.driver import run
from coordlock.settings import Settings, seconds_of
from coordlock.settings.keywords import Options

__all__ = ["LockService"]


class LockService:
    """A lock service in memory, for one test: enter it with ``with``.

    All clients with its `url` use it, also those that the code under test connects. Their time
    passes as usual, and `advance` adds to it; the time of day stays the system's.
    """

    def __init__(self) -> None:
        #: ``memory://`` and a name that no other service has.
        self.url: Final = f"memory://{uuid.uuid4().hex}"
        self._time = _Time()
        self._service = _Service(self._time)
        self._engines: list[Engine] = []
        self._clients: list[Client] = []
        self._place = _place(configure(self.url))
        self._make_engine = client_module._engine_of

    def __enter__(self) -> Self:
        setattr(client_module, "_engine_of", self._engine_of)  # noqa: B010 - for this service alone
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        setattr(client_module, "_engine_of", self._make_engine)  # noqa: B010
        for engine in reversed(self._engines):
            run(close(engine))
        self._time.close()

    def connect(self, **options: Unpack[Options]) -> Client:
        """Another client, closed when the test ends. With asyncio, connect to `url`."""
        self._clients.append(connect(self.url, **options))
        return self._clients[-1]

    @contextmanager
    def serve(self, client: Any) -> Iterator[None]:
        """Let a `Client` or `AsyncClient`, and its locks, use this service for a block.

        For one at the top of a module, which was made before the test. TypeError for a client of
        ``connect``, which has a session elsewhere.
        """
        access = client._access
        if access._make is None:
            raise TypeError(f"{client!r} is connected elsewhere: make it with its class")
        before = access._engines.pop(os.getpid(), None)
        access._engines[os.getpid()] = self._engine(client.settings)
        try:
            yield
        finally:
            del access._engines[os.getpid()]
            if before is not None:
                access._engines[os.getpid()] = before

    def advance(self, seconds: float | str) -> None:
        """Let ``seconds``, a number or such as ``"15m"``, pass at once, with all that is due then.

        Heartbeats are sent and answered, waits time out, ``max_hold`` ends. Another thread or task
        that waits needs a moment to notice.
        """
        self._time.advance(seconds_of(seconds))

    def lose(self, name: str) -> None:
        """End the sessions of those that hold ``name``: they lose all that they hold, now.

        LookupError if nobody holds it.
        """
        with connect(self.url) as operator:
            holders = [one for one in operator.admin.contenders(name) if one.holding]
            if not holders:
                raise LookupError(f"nobody holds {name!r}; in use are {operator.admin.names()}")
        for session in {one.contender.session for one in holders}:
            self._service.expire(session)

    @contextmanager
    def held(self, name: str, mode: Mode = Mode.EX) -> Iterator[Grant]:
        """Let another client hold ``name`` for a block. Raises `AcquireTimeout` if it is taken."""
        client = self.connect(label="another client")
        with client, client.lock(name, mode=mode, timeout=0) as grant:
            yield grant

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Let the service answer nobody for a block; then what it did not answer fails.

        A call that needs an answer waits for it, for the client's ``request_timeout`` or its own.
        """
        self._service.be_silent(True)
        try:
            yield
        finally:
            self._service.be_silent(False)

    def _engine_of(self, *given: Any) -> Engine:
        engine = self._make_engine(*given)
        is_mine = _place(engine.settings) == self._place
        return self._engine(engine.settings) if is_mine else engine

    def _engine(self, settings: Settings) -> Engine:
        timers = _Party(self._time)
        backend = MemoryBackend(self._service, settings.ttl, timers)
        engine = _Engine(backend, settings, timers)
        self._engines.append(engine)
        return engine


def _place(settings: Settings) -> tuple[object, ...]:
    return settings.scheme, settings.hosts, settings.root


class _Clock:
    """The system's clock, and what was added to it."""

    ahead = 0.0

    def now(self) -> float:
        return SYSTEM_CLOCK.now() + self.ahead


class _Waits(Cancellation):
    """Wakes the drivers that wait, and cancels nothing."""

    __slots__ = ()

    def wake(self) -> None:
        """Let them look at the clock."""
        for wake in list(self._wakers):
            wake(None)


class _Time(SystemTimers):
    """The timers of all that use one service, on one clock: so they fire in order."""

    def __init__(self) -> None:
        self._moving = _Clock()
        super().__init__("coordlock-test-time", self._moving)
        #: Wakes what waits for a moment, and not for a timer.
        self.waits: Final = _Waits()

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass in the timers' thread."""
        done = threading.Event()
        self.call_at(self.clock.now(), partial(self._advance, seconds, done))
        done.wait()

    def _advance(self, seconds: float, done: threading.Event) -> None:
        until = self.clock.now() + seconds
        while (timer := self._due(until)) is not None:
            self._move_to(timer.when)
            timer.fire()
        self._move_to(until)
        self.waits.wake()
        done.set()

    def _due(self, until: float) -> Timer | None:
        with self._lock:
            return (
                heapq.heappop(self._heap)[2] if self._heap and self._heap[0][0] <= until else None
            )

    def _move_to(self, when: float) -> None:
        self._moving.ahead += max(0.0, when - self.clock.now())


class _Party:
    """The timers of one client, or of its connection."""

    def __init__(self, time: _Time) -> None:
        self.clock = time.clock
        self.time = time
        self._timers: list[Timer] = []
        self._closed = False

    def jitter(self, longest: float) -> float:
        return self.time.jitter(longest)

    def call_at(self, when: float, action: Any) -> Timer:
        if self._closed:
            raise ClientClosed
        timer = self.time.call_at(when, action)
        self._timers = [*(one for one in self._timers if one.action is not None), timer]
        return timer

    def close(self) -> None:
        self._closed = True
        for timer in self._timers:
            timer.fire()


class _Engine(Engine):
    """A client at work, whose waits look at the clock when it was moved."""

    def deadline(self, seconds: float | None) -> Deadline | None:
        found = super().deadline(seconds)
        timers = self.timers
        assert isinstance(timers, _Party)
        return found and Deadline(found.clock, found.at, (timers.time.waits,))


class _Service(MemoryService):
    """A service that can be silent."""

    def __init__(self, timers: _Time) -> None:
        super().__init__(timers)
        self._networks: WeakSet[Faults] = WeakSet()
        self._is_silent = False

    def connected(self, network: Faults) -> None:
        self._networks.add(network)
        if self._is_silent:
            network.partition()

    def be_silent(self, silent: bool) -> None:
        self._is_silent = silent
        for network in list(self._networks):
            network.partition() if silent else network.heal()
