"""What `coordlock doctor` shows of a Redis: its version, and what may lose locks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from redis import exceptions

from coordlock.backend import ServiceInfo
from coordlock.errors import BackendError
from coordlock.runtime.promise import Promise, failed
from coordlock.runtime.worker import Worker
from coordlock_redis.errors import client_closed, translate
from coordlock_redis.servers import Servers, info

__all__ = ["describe", "is_durable", "warnings"]

#: Seconds of a replica's silence that are worth a line.
_LAG: Final = 2


def describe(
    servers: Servers, replicas: int, name: str, closing: Promise[None] | None
) -> Promise[ServiceInfo]:
    """Ask the server, over a connection of its own. ``name`` is the scheme."""
    if closing is not None:
        return failed(client_closed())
    promise: Promise[ServiceInfo] = Promise()
    Worker("coordlock-redis-describe").run(partial(_ask, servers, replicas, name, promise))
    return promise


def _ask(servers: Servers, replicas: int, name: str, promise: Promise[ServiceInfo]) -> None:
    try:
        link = servers.connect()
        try:
            link.send([("INFO",), ("CONFIG", "GET", "appendfsync")])
            fields = info(link.receive())
            try:
                answer: list[Any] = link.receive()
                fields |= {"appendfsync": answer[1].decode()} if answer else {}
            except exceptions.ResponseError:
                pass  # the user may not ask, or a provider has renamed the command
        except (exceptions.RedisError, OSError) as error:
            raise translate(error, link.where) from None
        finally:
            link.close()
    except BackendError as error:
        promise.fail(error)
    else:
        version = fields.get("valkey_version") or fields.get("redis_version", "")
        promise.resolve(
            ServiceInfo(name, version, servers.names, tuple(warnings(fields, replicas)))
        )


def is_durable(fields: Mapping[str, str]) -> bool:
    """Whether a restart loses nothing that was acknowledged."""
    return fields.get("aof_enabled") == "1" and fields.get("appendfsync") == "always"


def warnings(fields: Mapping[str, str], replicas: int) -> Iterator[str]:
    """What follows for locks from what the server says of itself."""
    policy = fields.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys") and fields.get("maxmemory", "0") != "0":
        yield (
            f"maxmemory-policy is {policy}, so Redis may delete locks and data when its memory is "
            "full: set it to noeviction, or keep locks in a Redis of their own"
        )
    elif fields.get("maxmemory", "0") != "0":
        yield (
            f"maxmemory is {fields.get('maxmemory_human', fields['maxmemory'])}: when it is full, "
            "nothing new can be acquired; what is held stays held"
        )
    if fields.get("aof_enabled") != "1":
        yield (
            "it keeps no append-only file, so a restart loses data; tokens grow all the same, "
            "unless the clock goes back"
        )
    elif not is_durable(fields):
        yield (
            f"appendfsync is {fields.get('appendfsync', 'not known')}, so a crash loses the last "
            "writes; with always it loses none"
        )
    connected = int(fields.get("connected_slaves", "0"))
    if connected:
        yield from _about_replicas(fields, connected, replicas)
    elif replicas:
        yield f"it has no replica, and wait_replicas wants {replicas}: nothing will be granted"


def _about_replicas(fields: Mapping[str, str], connected: int, replicas: int) -> Iterator[str]:
    yield (
        f"it has {connected} replica{'s' if connected > 1 else ''}, and a failover may lose what "
        "was acknowledged last: two may hold a lock until earlier grants have expired"
        + ("" if replicas else "; the option wait_replicas narrows that")
    )
    if connected < replicas:
        yield f"wait_replicas wants {replicas} replicas: nothing will be granted"
    for number in range(connected):
        replica = fields.get(f"slave{number}", "")
        lag = dict(part.partition("=")[::2] for part in replica.split(",")).get("lag", "0")
        if int(lag) > _LAG:
            yield f"a replica has been silent for {lag} s"
