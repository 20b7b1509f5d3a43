"""What `coordlock doctor` shows of a Redis: its version, and what may lose locks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from redis import exceptions

from coordlock.backend import ServiceInfo
from coordlock.runtime.promise import Promise, failed, in_thread
from coordlock_redis.errors import client_closed, translate
from coordlock_redis.requests import MICROSECONDS
from coordlock_redis.servers import BROKEN, Connection, Servers, info

__all__ = ["Question", "describe", "fields_of", "findings"]


#: Whether it is as it should be, and what follows.
Finding = tuple[bool, str]


@dataclass(frozen=True)
class Question:
    """The client that asks: its scheme and its options. Times in seconds.

    Attributes:
        delay: for how long nothing is granted after a restart, by the client's own option.
    """

    servers: Servers
    scheme: str
    delay: float
    replicas: int


def describe(question: Question, closing: Promise[None] | None) -> Promise[ServiceInfo]:
    """Ask the server, over a connection of its own."""
    if closing is not None:
        return failed(client_closed())
    return in_thread("coordlock-redis-describe", partial(_ask, question))


def fields_of(connection: Connection) -> dict[str, str]:
    """What the server says of itself."""
    [text] = connection.ask(("INFO",))
    fields = info(text)
    # The user may not ask, or a provider has renamed the command.
    with suppress(exceptions.ResponseError):
        [answer] = connection.ask(("CONFIG", "GET", "appendfsync"))
        fields |= {"appendfsync": answer[1].decode()} if answer else {}
    return fields


def _ask(question: Question) -> ServiceInfo:
    servers = question.servers
    connection = servers.connect()
    try:
        fields = fields_of(connection)
        [delay] = connection.ask(("HGET", servers.key, "restart_delay"))
    except BROKEN as error:
        raise translate(error, connection.where) from None
    finally:
        connection.close()
    version = fields.get("valkey_version") or fields.get("redis_version", "")
    found = list(findings(fields, question, int(delay or 0) / MICROSECONDS))
    notes = tuple(text for is_well, text in found if is_well)
    warnings = tuple(text for is_well, text in found if not is_well)
    return ServiceInfo(question.scheme, version, servers.names, warnings, notes)


def findings(
    fields: Mapping[str, str],
    question: Question,
    pause: float = 0.0,
) -> Iterator[Finding]:
    """What follows for locks from what the servers say of themselves.

    ``pause`` is the largest delay that a client of the root ever had, in seconds.
    """
    delay = max(question.delay, pause)
    yield from _about_memory(fields)
    yield _about_files(fields)
    if int(fields.get("connected_slaves", "0")):
        yield from _about_replicas(fields, question.replicas)
    elif question.replicas:
        yield False, f"no replica, and wait_replicas wants {question.replicas}: nothing is granted"
    else:
        yield True, "no replica: nothing fails over, and nothing is granted while it is down"
    yield (
        True,
        f"after a restart, a failover or lost data, nothing is granted for {delay:g} s"
        + (
            " (restart_delay)"
            if delay == question.delay
            else ", the largest restart_delay that a client ever had here. Once no such client has "
            "run for that time, reset it: redis-cli HDEL "
            f"{shlex.quote(question.servers.key.decode())} restart_delay"
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
