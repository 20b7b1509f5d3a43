"""What the client asks of Redis: a script, its arguments, and what its answer means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from coordlock.errors import BackendError, BackendUnavailable, Evicted, SessionLost
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_redis.errors import SERVICE
from coordlock_redis.servers import Connection, Word, packed

__all__ = ["MICROSECONDS", "Request", "ScriptContext", "Word", "decoded", "loss"]

log = Log("coordlock")

T = TypeVar("T")

MICROSECONDS: Final = 1_000_000


@dataclass(slots=True)
class ScriptContext:
    """What each run of the script is given.

    Attributes:
        key: of the root's state.
        client: names the client's inbox.
        delay: for how many seconds nothing is granted after another server came, or the same one
            without its data. The largest of all clients counts.
        largest_delay: that one, when the client saw the root's state last.
        born: when the state that it has seen was made, by the server's clock; 0 for none yet.
        is_quiet: whether the log says that nothing is granted for some time.
        failure: why the client's thread has failed; then its session must end.
    """

    key: bytes
    client: str
    delay: float
    largest_delay: float
    born: int = 0
    is_quiet: bool = False
    failure: str = ""

    def arguments(self, name: str, connection: Connection) -> tuple[Word, ...]:
        """The key and the arguments before those of the operation ``name``."""
        delays = [int(delay * MICROSECONDS) for delay in (self.delay, self.largest_delay)]
        known = f"{connection.started} {self.born} {delays[0]} {delays[1]}"
        return (1, self.key, name, connection.run, self.client, int(connection.is_cluster), known)


@dataclass(slots=True, eq=False)
class Request(Generic[T]):
    """One run of the script.

    Attributes:
        name: of the operation.
        arguments: of the operation.
        read: what the answer means; raises coordlock's errors.
        changes: whether replicas must have what it does.
    """

    name: str
    arguments: Sequence[Word]
    read: Callable[[list[Any]], T]
    changes: bool = False
    promise: Promise[T] = field(default_factory=Promise)
    #: When it was sent.
    sent_at: float = 0.0

    def command(self, context: ScriptContext, connection: Connection) -> bytes:
        """The command."""
        given = context.arguments(self.name, connection)
        return packed("EVALSHA", connection.digest, *given, *self.arguments)

    def answer(self, answer: Any, context: ScriptContext) -> None:
        """Complete the promise by the ``answer`` of the script."""
        try:
            found = self.read(_checked(answer, context))
        except Exception as error:
            self.promise.fail(error)
        else:
            self.promise.resolve(found)


def decoded(name: bytes) -> str:
    """The name that `packed` has encoded; what another program has written, as far as possible."""
    try:
        return name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return name.decode("utf-8", "replace")


def _checked(answer: list[Any], context: ScriptContext) -> list[Any]:
    status, *rest = answer
    match status:
        case b"ok" | b"blocked" | b"version":
            return answer
        case b"evicts":
            raise BackendError(
                SERVICE,
                f"maxmemory-policy is {decoded(rest[0])}, so Redis may delete locks when its "
                "memory is full: set it to noeviction",
            )
        case b"refused":
            raise BackendError(SERVICE, decoded(rest[0]))
        case b"lost":
            raise loss(rest[0], context)
        case b"quiet":
            quiet = BackendUnavailable(
                SERVICE,
                "Redis is new, was restarted, has failed over or lost its data: nothing is granted "
                f"for {rest[0] / MICROSECONDS:.1f} s more, until earlier grants have expired "
                "(option restart_delay)",
            )
            if not context.is_quiet:  # the request is sent again and again until then
                context.is_quiet = True
                log.warning("%s", quiet)
            raise quiet
        case b"evicted":
            raise Evicted(decoded(rest[0]) if rest else "")
    raise BackendError(SERVICE, f"a script answered {status!r}")


def loss(born: int, context: ScriptContext) -> SessionLost:
    """Why the session is gone, if the state is as old as ``born`` now."""
    if context.born and born != context.born:
        reason = (
            "another Redis answers, or the same one after a restart or without its data "
            "(failover, restart, FLUSHALL, eviction)"
        )
    else:
        reason = "it expired, or an operator deleted it"
    return SessionLost(SERVICE, reason)
