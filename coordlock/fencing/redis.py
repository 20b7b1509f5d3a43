"""A fence in Redis: one script checks the token and runs the caller's commands.

::

    fence = RedisFence(redis.Redis(...))
    with client.lock("alice") as grant:
        balance = int(fence.execute("alice", grant, "GET", "{alice}:balance"))
        fence.execute("alice", grant, "SET", "{alice}:balance", balance - 30)

Redis runs one script at a time, so no newer holder comes between the check and the commands.

**Commands** go to Redis as they are given, from inside the script:

- Replies come as Redis hands them to scripts, the same with RESP2 and RESP3: what redis-py's own
  methods make of them is left out. Texts are ``bytes``, or ``str`` with ``decode_responses``; a
  status is ``b"OK"``, what is missing ``None``, a float a text, ``HGETALL`` a flat list. Integers
  beyond 2**53 are rounded on their way through Lua; ``GET`` brings them as exact texts.
- What scripts may not do (``MULTI``, ``SUBSCRIBE``, ``CONFIG``, whatever blocks), or what fails,
  raises redis-py's ``ResponseError``. The mark of the token stays raised then, and of several
  commands those before the failing one stay applied, as with ``MULTI``.
- A command has at most about 7,900 words: Lua's stack ends there.
- redis-py sends again what got no answer: ``redis.Redis()`` does from its version 6 on, unless told
  otherwise. Equal tokens pass, so an ``INCR`` can be applied twice, and a ``SET`` that was late can
  come after a later one of the same holder. Have ``retry=Retry(NoBackoff(), 0)``, and after an
  error of the connection go on under a new grant: its first operation shuts out what is late.
- A `StaleToken` after a second sending says that this one was refused; the first may have been
  applied, when its token was still the newest.
- On a replica nothing is fenced: one that is only read there passes, and reads the past.

**Marks** are a hash ``coordlock:fence:{alice}``, as durable as the data beside it:

- They have no time-to-live. With a ``maxmemory-policy`` of ``allkeys-*`` Redis may evict them, and
  a stale token passes then: use ``noeviction`` or ``volatile-*``.
- A failover of Redis or Redis Cluster can lose what was acknowledged last, writes and marks alike,
  because replication is asynchronous. Fence where losing acknowledged writes is not acceptable
  with SQL, etcd or ZooKeeper.
- Where users have access lists, they need ``EVALSHA``, ``EVAL``, ``HMGET``, ``HSET`` and ``DEL``.
- On Redis Cluster, keys must have the hash tag of the marks: ``{alice}:balance``, or for any name
  ``hash_tag(name) + ":balance"``. The first argument of each command is declared as its key, so
  that while its slot moves, a node answers with the key or not at all. Name the ``keys`` yourself
  where a command has several, or none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from coordlock.errors import ConfigurationError, StaleToken
from coordlock.fencing.fence import AsyncFence, Fence
from coordlock.fencing.marks import Marks
from coordlock.fencing.token import FencingToken, Presented, check_resource

try:
    from redis.exceptions import NoScriptError
except ImportError:
    raise ConfigurationError.missing("the Redis fence needs the package redis", "redis") from None

if TYPE_CHECKING:
    import redis
    import redis.asyncio

__all__ = ["AsyncRedisFence", "RedisFence", "hash_tag"]

# The rule of `Marks`. Lua's numbers are doubles, which can't tell large neighbours apart. So tokens
# are texts of 19 digits, which sort like the numbers. The empty text sorts first, and is no mark.
# A mark that would not change is not written, so that there is nothing to replicate.
_SCRIPT: Final = b"""\
local token, kind = ARGV[1], ARGV[2]
local seen = redis.call("HMGET", KEYS[1], "exclusive", "shared")
local marks = {exclusive = seen[1] or "", shared = seen[2] or ""}
local newest = marks.exclusive
if kind == "exclusive" and marks.shared > newest then newest = marks.shared end
if token < newest then return {newest} end
if token > marks[kind] then redis.call("HSET", KEYS[1], kind, token) end
local replies, at = {""}, 3
while at <= #ARGV do -- the number of a command's words, and the words
  local last = at + ARGV[at]
  replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, last))
  at = last + 1
end
return replies
"""
_DIGEST: Final = hashlib.sha1(_SCRIPT, usedforsecurity=False).hexdigest().encode()


class _Client(Protocol):
    """The method of redis-py that fences use, awaited or not. redis-py has no types for it."""

    def execute_command(self, *words: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the script, and what its reply means."""

    resource: str
    token: FencingToken
    arguments: tuple[Any, ...]

    @property
    def by_digest(self) -> tuple[Any, ...]:
        return ("EVALSHA", _DIGEST, *self.arguments)

    @property
    def by_source(self) -> tuple[Any, ...]:
        # Redis forgets scripts at its restart. This runs it and makes it known again.
        return ("EVAL", _SCRIPT, *self.arguments)

    def judge(self, reply: list[Any]) -> list[Any]:
        newest, *replies = reply
        if newest:
            raise StaleToken(self.resource, self.token.value, int(newest))
        return replies


class _Keys:
    """The parts of both fences that need no waiting."""

    def __init__(self, client: _Client, prefix: str) -> None:
        if "{" in prefix or "}" in prefix:
            raise ConfigurationError(f"the prefix of a fence's keys cannot have braces: {prefix!r}")
        if hasattr(client, "execute"):  # as all pipelines have and no client
            raise ConfigurationError(
                "a fence judges the reply to each command; give it the client, not a pipeline"
            )
        self._client = client
        self._prefix = prefix

    def _key(self, resource: str) -> bytes:
        # Encoded here, like all words but the caller's: clients may encode in different ways, and
        # must mean the same key.
        return (self._prefix + hash_tag(check_resource(resource))).encode()

    def _call(
        self,
        resource: str,
        token: Presented,
        shared: bool,
        commands: Iterable[Sequence[Any]],
        keys: Iterable[Any] | None,
    ) -> _Call:
        presented = FencingToken.of(token, shared)
        words: list[Any] = []
        first: list[Any] = []
        for command in commands:
            if isinstance(command, str | bytes):
                raise TypeError(f"a command is a sequence of its words, not {command!r}")
            words += (b"%d" % len(command), *command)
            first += command[1:2]
        names = [self._key(resource), *(first if keys is None else keys)]
        kind = b"shared" if presented.shared else b"exclusive"
        arguments = (len(names), *names, b"%019d" % presented.value, kind, *words)
        return _Call(resource, presented, arguments)

    def _look(self, resource: str) -> tuple[Any, ...]:
        return ("HMGET", self._key(resource), b"exclusive", b"shared")

    def _delete(self, resource: str) -> tuple[Any, ...]:
        return ("DEL", self._key(resource))


class RedisFence(_Keys, Fence):
    """Protects keys of a Redis: see `coordlock.fencing.redis`.

    Args:
        client: how to reach it. It stays the caller's, to be closed by the caller.
        prefix: of the keys in which marks are kept; no braces. All users of one resource must use
            the same.

    Methods raise redis-py's own errors too, and ``ConfigurationError`` for a pipeline.
    """

    def __init__(
        self, client: redis.Redis | redis.RedisCluster, *, prefix: str = "coordlock:fence:"
    ) -> None:
        super().__init__(client, prefix)

    def execute(
        self,
        resource: str,
        token: Presented,
        *command: Any,
        shared: bool = False,
        keys: Iterable[Any] | None = None,
    ) -> Any:
        """Check ``token`` and run ``command`` in one step; its reply.

        ``command`` is its name and arguments: ``bytes``, ``str``, ``int`` or ``float``. ``keys``
        are those that it uses, by default its first argument. Raises `StaleToken` when a newer
        token was seen, and nothing was run then.
        """
        [reply] = self.execute_all(resource, token, [command], shared, keys)
        return reply

    def execute_all(
        self,
        resource: str,
        token: Presented,
        commands: Iterable[Sequence[Any]],
        shared: bool = False,
        keys: Iterable[Any] | None = None,
    ) -> list[Any]:
        """Check ``token`` and run ``commands`` in one step; their replies in order.

        Nothing else runs between them. They are not rolled back: when one fails, those before it
        stay applied, and its error is raised. ``keys`` are those of all of them. Otherwise as
        `execute`.
        """
        call = self._call(resource, token, shared, commands, keys)
        try:
            reply = self._client.execute_command(*call.by_digest)
        except NoScriptError:
            reply = self._client.execute_command(*call.by_source)
        return call.judge(reply)

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        """Remember ``token``; raise `StaleToken` when a newer one was seen.

        Enough before a read. Between this check and a write a newer holder can come: use `execute`.
        """
        self.execute_all(resource, token, (), shared)

    def marks(self, resource: str) -> Marks:
        """The newest tokens seen."""
        return _marks(self._client.execute_command(*self._look(resource)))

    def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``: see `Fence.forget`."""
        self._client.execute_command(*self._delete(resource))


class AsyncRedisFence(_Keys, AsyncFence):
    """`RedisFence` for asyncio."""

    def __init__(
        self,
        client: redis.asyncio.Redis | redis.asyncio.RedisCluster,
        *,
        prefix: str = "coordlock:fence:",
    ) -> None:
        super().__init__(client, prefix)

    async def execute(
        self,
        resource: str,
        token: Presented,
        *command: Any,
        shared: bool = False,
        keys: Iterable[Any] | None = None,
    ) -> Any:
        """Check ``token`` and run ``command`` in one step; its reply: see `RedisFence.execute`.

        When the task is cancelled meanwhile, the command may have been run.
        """
        [reply] = await self.execute_all(resource, token, [command], shared, keys)
        return reply

    async def execute_all(
        self,
        resource: str,
        token: Presented,
        commands: Iterable[Sequence[Any]],
        shared: bool = False,
        keys: Iterable[Any] | None = None,
    ) -> list[Any]:
        """Check ``token`` and run ``commands`` in one step: see `RedisFence.execute_all`."""
        call = self._call(resource, token, shared, commands, keys)
        try:
            reply = await self._client.execute_command(*call.by_digest)
        except NoScriptError:
            reply = await self._client.execute_command(*call.by_source)
        return call.judge(reply)

    async def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        """Remember ``token``; raise `StaleToken` when a newer one was seen.

        Enough before a read. Between this check and a write a newer holder can come: use `execute`.
        """
        await self.execute_all(resource, token, (), shared)

    async def marks(self, resource: str) -> Marks:
        """The newest tokens seen."""
        return _marks(await self._client.execute_command(*self._look(resource)))

    async def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``: see `Fence.forget`."""
        await self._client.execute_command(*self._delete(resource))


def hash_tag(resource: str) -> str:
    """What a key must contain to live in the same slot of a Redis Cluster as the marks.

    ``{alice}`` for ``alice``. A tag ends at its first closing brace and is none when it is empty;
    so in names, ``}`` is written ``%7D`` and ``%`` ``%25``, and the empty name is ``{%}``.
    """
    return "{" + (resource.replace("%", "%25").replace("}", "%7D") or "%") + "}"


def _marks(reply: Any) -> Marks:
    return Marks(*(int(mark or 0) for mark in reply))
