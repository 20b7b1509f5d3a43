"""The backend contract on Redis: queues, data and observations, one script for each request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, overload

from coordlock.backend import Capabilities, Departure, Queue, ServiceInfo
from coordlock.errors import BackendError, BackendUnavailable, VersionMismatch
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.model.names import is_internal
from coordlock.runtime.clock import Timers
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, failed, in_thread
from coordlock.settings import Option, Settings
from coordlock_redis import access, compat, contenders
from coordlock_redis.contenders import names
from coordlock_redis.errors import SERVICE, client_closed
from coordlock_redis.options import OPTIONS, TCP, TLS, UNIX, restart_delay
from coordlock_redis.requests import MICROSECONDS, Request, Word, decoded
from coordlock_redis.scripts import usual
from coordlock_redis.session import RedisSession

if TYPE_CHECKING:
    from coordlock.backend import Listing, Observation, Operation, Written

__all__ = ["RedisBackend", "RedisTLSBackend", "RedisUnixBackend", "ValkeyBackend"]

#: How many entries one script adds: more answers than that do not fit on Lua's stack.
_MAX_ENTRIES: Final = 1000
#: How many names one script lists of a range: the service does nothing else meanwhile.
_MAX_NAMES: Final = 1000


class RedisBackend(RedisSession):
    """Locks in Redis 6.2 or later, or Valkey: see `coordlock_redis`."""

    scheme: ClassVar[str] = "redis"
    capabilities: ClassVar[Capabilities] = Capabilities(
        reach="cluster",
        leased=True,
        durable=False,
        ordered=True,
        fenced=True,
        sets=True,
        publishing=True,
        data=True,
        one_step="all",
    )
    options: ClassVar[Sequence[Option]] = (*OPTIONS, compat.OPTION, *TCP)
    #: Whether connections are encrypted.
    tls: ClassVar[bool] = False
    #: All keys of a root begin with its hash tag, and those of the data have a name of their own.
    shares_keys: ClassVar[bool] = False
    default_port: ClassVar[int] = 6379

    @classmethod
    def configure(cls, settings: Settings, client: object | None = None, *, timers: Timers) -> Self:
        """A backend for ``settings``.

        ``client`` is a client of redis-py or of valkey-py, of which the backend takes how to
        connect. It makes its own connections, because heartbeats must not wait for the program's.
        """
        prefix = access.prefix(settings.root)
        script = usual() if settings.options["compat"] is None else compat.script()
        servers = access.servers(settings, client, timers.clock, script, tls=cls.tls)
        return cls(
            servers,
            prefix,
            settings.ttl,
            timers,
            delay=restart_delay(settings),
            replicas=settings.options["wait_replicas"],
        )

    def describe(self) -> Promise[ServiceInfo]:
        from coordlock_redis.describe import described

        if self._closing is not None:
            return failed(client_closed())
        options = (self.scheme, self._context.delay, self._replicas)
        return in_thread("coordlock-redis-describe", partial(described, self._servers, *options))

    # Queues

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        if len(entries) > _MAX_ENTRIES:
            reason = f"it takes at most {_MAX_ENTRIES} entries in one step, not {len(entries)}"
            return failed(BackendError(SERVICE, reason))

        def request(session: str) -> Request[tuple[Snapshot, ...]]:
            arguments = contenders.entries(session, entries, unless_blocked=unless_blocked)
            return Request("enqueue", arguments, partial(self._enqueued, entries), changes=True)

        return self._in_session(request)

    def _enqueued(self, entries: Sequence[Entry], answer: list[Any]) -> tuple[Snapshot, ...]:
        _, revision, *found = answer
        listed, left = found[: len(entries)], found[len(entries) :]
        snapshots = tuple(
            contenders.snapshot(entry.queue, revision, part)
            for entry, part in zip(entries, listed, strict=True)
        )
        for snapshot, microseconds in zip(snapshots, left, strict=True):
            if microseconds >= 0:
                self._watches.arranged(snapshot.contenders[-2], microseconds)
        return snapshots

    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        arguments: list[Word] = []
        for entry in entries:
            arguments += (entry.queue, entry.id, "")

        def withdrawn(answer: list[Any]) -> bool:
            return bool(answer[1] == len(entries))

        return self._requests.ask(Request("withdraw", arguments, withdrawn, changes=True))

    def evict(self, contender: Contender) -> Promise[bool]:
        arguments = names(contender)
        return self._requests.ask(Request("withdraw", arguments, lambda answer: answer[1] == 1))

    def snapshot(
        self,
        queue: str,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Promise[Snapshot]:
        arguments: tuple[Word, ...] = (queue, 0, 0, "")
        if upto is not None:
            window = -1 if conflicting else upto.claim.window
            arguments = (queue, upto.order, window, contenders.compatible(upto.claim))

        def read(answer: list[Any]) -> Snapshot:
            return contenders.snapshot(queue, answer[1], answer[2])

        return self._requests.ask(Request("snapshot", arguments, read))

    def queues(self) -> Promise[list[str]]:
        def read(answer: list[Any]) -> list[str]:
            names = map(decoded, answer[1])
            return [name for name in names if not is_internal(name)]

        return self._requests.ask(Request("queues", (), read))

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        *,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        return self._watches.watch(contender, revision, on_departure, waiters, changes=changes)

    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:
        def read(answer: list[Any]) -> None:
            if answer[0] == b"version":
                raise VersionMismatch(contender.key, version)

        arguments = (*names(contender), version, value)
        return self._requests.ask(Request("publish", arguments, read, changes=True))

    # Data and observations

    def read(self, where: str, *, guard: Contender | None = None) -> Promise[Listing]:
        from coordlock_redis import data

        return self._requests.ask(data.read(where, guard))

    def names(self, folder: str, first: int | None = None, split: str = "") -> Promise[list[str]]:
        return run_in_background(self._names(folder, first, split))

    def _names(self, folder: str, first: int | None, split: str) -> Steps[list[str]]:
        from coordlock_redis import data

        ends = ["(" + split, "+"]
        found: tuple[list[str], list[str]] = [], []
        starts = {0: "-", 1: "[" + split}
        page = _MAX_NAMES if first is None else min(first, _MAX_NAMES)
        while starts:
            ranges = [(start, ends[part]) for part, start in starts.items()]
            answer = yield self._requests.ask(data.names_in(folder, page, ranges))
            for part, some in zip(list(starts), answer, strict=True):
                found[part].extend(some)
                if len(some) < page or (first is not None and len(found[part]) >= first):
                    del starts[part]
                else:
                    starts[part] = "(" + some[-1]
        return [*found[0][:first], *found[1][:first]]

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[Written]:
        from coordlock_redis import data

        return self._requests.ask(data.write(operations, guards))

    def service_time(self) -> Promise[float | None]:
        def read(answer: list[Any]) -> float:
            return int(answer[1]) / MICROSECONDS

        return self._requests.ask(Request("time", (), read))

    @overload
    def follow(self, place: Queue, news: Callable[[], None]) -> Observation[Snapshot]: ...
    @overload
    def follow(self, place: str, news: Callable[[], None]) -> Observation[Listing]: ...
    def follow(self, place: Queue | str, news: Callable[[], None]) -> Observation[Any]:
        if isinstance(place, str):
            from coordlock_redis import data

            return self._follow(data.channel(place), partial(self.read, place), news)
        read = partial(self.snapshot, place.name, owners=True)
        return self._follow(f"changes:{place.name}", read, news)

    def follow_news(self, key: str, news: Callable[[], None]) -> Observation[Listing]:
        from coordlock_redis import data

        return self._follow(data.channel(key), None, news)

    def _follow(
        self, channel: str, read: Callable[[], Promise[Any]] | None, news: Callable[[], None]
    ) -> Observation[Any]:
        name = self._root + channel.encode("utf-8", "surrogatepass")
        reading = read and (lambda: run_in_background(self._reading(read)))
        observation = self._observers.observe(name, reading, news)
        self._subscription.keep()
        return observation

    def _reading(self, read: Callable[[], Promise[Any]]) -> Steps[Any]:
        try:
            return (yield read())
        except BackendError as error:
            if type(error) is not BackendError:
                raise
            # It may pass, as when memory is full.
            raise BackendUnavailable(SERVICE, error.reason) from error


class ValkeyBackend(RedisBackend):
    """The same on Valkey."""

    scheme: ClassVar[str] = "valkey"


class RedisTLSBackend(RedisBackend):
    """The same over TLS."""

    scheme: ClassVar[str] = "rediss"
    options: ClassVar[Sequence[Option]] = (*OPTIONS, compat.OPTION, *TCP, *TLS)
    tls: ClassVar[bool] = True


class RedisUnixBackend(RedisBackend):
    """The same over a socket of this machine."""

    scheme: ClassVar[str] = "redis+unix"
    options: ClassVar[Sequence[Option]] = (*OPTIONS, compat.OPTION, *UNIX)
    default_port: ClassVar[int] = 0
