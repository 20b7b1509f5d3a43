"""What `coordlock doctor` shows of a Redis: its version, and what may lose locks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress

from redis import exceptions

from coordlock.backend import ServiceInfo
from coordlock_redis.errors import translate
from coordlock_redis.requests import MICROSECONDS
from coordlock_redis.servers import BROKEN, Servers, info

__all__ = ["described", "fields_of", "findings", "version_of"]


#: Whether it is as it should be, and what follows.
Finding = tuple[bool, str]


def described(servers: Servers, scheme: str, delay: float, replicas: int) -> ServiceInfo:
    """Ask the server, as a client with these options. Blocks."""
    fields = fields_of(servers)
    found = list(findings(fields, servers.key, delay, replicas))
    notes = tuple(text for is_well, text in found if is_well)
    warnings = tuple(text for is_well, text in found if not is_well)
    return ServiceInfo(scheme, version_of(fields), servers.names, warnings, notes)


def fields_of(servers: Servers) -> dict[str, str]:
    """What the server says of itself and of the root, over a connection of its own. Blocks."""
    connection = servers.connect()
    try:
        [text] = connection.ask(("INFO",))
        fields = info(text)
        # The user may not ask, or a provider has renamed the command.
        with suppress(exceptions.ResponseError):
            [delay] = connection.ask(("HGET", servers.key, "restart_delay"))
            fields["restart_delay"] = (delay or b"0").decode()
            [answer] = connection.ask(("CONFIG", "GET", "appendfsync"))
            fields |= {"appendfsync": answer[1].decode()} if answer else {}
    except BROKEN as error:
        raise translate(error, connection.where) from None
    finally:
        connection.close()
    return fields


def version_of(fields: Mapping[str, str]) -> str:
    """Its release."""
    return fields.get("valkey_version") or fields.get("redis_version", "")


def findings(
    fields: Mapping[str, str], key: bytes, delay: float, replicas: int
) -> Iterator[Finding]:
    """What follows for locks from what the server says, for a client with these options.

    ``key`` is that of the root's state, which knows the largest ``delay`` of all clients.
    """
    largest = max(delay, int(fields.get("restart_delay", "0")) / MICROSECONDS)
    yield from _about_memory(fields)
    yield _about_files(fields)
    if int(fields.get("connected_slaves", "0")):
        yield from _about_replicas(fields, replicas)
    elif replicas:
        yield False, f"no replica, and wait_replicas wants {replicas}: nothing is granted"
    else:
        yield True, "no replica: nothing fails over, and nothing is granted while it is down"
    yield (
        True,
        f"after a restart, a failover or lost data, nothing is granted for {largest:g} s"
        + (
            " (restart_delay)"
            if largest == delay
            else ", the largest restart_delay that a client ever had here. Once no such client has "
            f"run for that time, reset it: redis-cli HDEL {shlex.quote(key.decode())} restart_delay"
        ),
    )


def _about_memory(fields: Mapping[str, str]) -> Iterator[Finding]:
    if fields.get("maxmemory", "0") == "0":
        yield True, "maxmemory is not set: no key is deleted to make room"
    else:
        yield (
            False,
            f"maxmemory is {fields.get('maxmemory_human', fields['maxmemory'])}: when it is full, "
            "nothing new can be acquired; what is held stays held",
        )


def _about_files(fields: Mapping[str, str]) -> Finding:
    if fields.get("aof_enabled") != "1":
        return False, (
            "no append-only file: a restart loses data; tokens grow all the same, unless the "
            "clock goes back"
        )
    if fields.get("aof_last_write_status", "ok") != "ok":
        return False, "its last write to the append-only file failed: see its log"
    if fields.get("appendfsync") == "always":
        return True, (
            "appendfsync is always: a crash loses nothing that was acknowledged. It ends every "
            "grant all the same"
        )
    return False, (
        f"appendfsync is {fields.get('appendfsync', 'not known')}, so a crash loses the last "
        "writes; with always it loses none"
    )


def _about_replicas(fields: Mapping[str, str], wanted: int) -> Iterator[Finding]:
    connected = int(fields["connected_slaves"])
    yield (
        False,
        f"{connected} replica{'s' if connected > 1 else ''}: a failover may lose what was "
        "acknowledged last, and two may hold a lock until earlier grants have expired"
        + ("" if wanted else "; the option wait_replicas narrows that"),
    )
    if connected < wanted:
        yield False, f"wait_replicas wants {wanted} replicas: nothing is granted"
