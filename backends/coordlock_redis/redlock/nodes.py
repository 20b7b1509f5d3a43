"""The servers of a Redlock: which of them may vote, and what `coordlock doctor` shows of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from coordlock.backend import ServiceInfo
from coordlock.errors import BackendError, BackendUnavailable
from coordlock.runtime.log import Log
from coordlock_redis.describe import fields_of
from coordlock_redis.errors import BROKEN, translate
from coordlock_redis.servers import Connection, Servers

__all__ = ["SERVICE", "Node", "described"]

log = Log("coordlock")

SERVICE: Final = "redlock"


#: Of all nodes, so that one notes which server it reaches before the next one looks.
_LOCK: Final = threading.Lock()


@dataclass(eq=False)
class Node(Servers):
    """One server of a Redlock.

    Attributes:
        nodes: all of the client's.
    """

    nodes: list[Node] = field(default_factory=list, repr=False)
    #: Which server's process it votes for.
    run: bytes = field(default=b"", init=False, repr=False)
    #: The refusal that the log shows: every request connects again.
    _logged: str = field(default="", init=False, repr=False)

    def connect(self) -> Connection:
        """A connection, unless the server can have no vote."""
        try:
            return super().connect()
        except BackendError as error:
            if not isinstance(error, BackendUnavailable) and error.reason != self._logged:
                self._logged = error.reason
                log.warning("a server of redlock:// has no vote: %s", error.reason)
            raise

    def _check(self, connection: Connection) -> None:
        [name] = self.names
        with _LOCK:
            others = (node for node in self.nodes if node is not self)
            other = next((node for node in others if node.run == connection.run), None)
            self.run = connection.run if other is None else b""  # addresses may change places
        if connection.is_cluster:
            reason = (
                f"{name} is a node of a cluster, which keeps a key on one node only: "
                "name servers that know nothing of each other, or use redis:// for the cluster"
            )
        elif other is not None:
            reason = (
                f"{name} is the same server as {other.names[0]}, which votes once: "
                "name another server"
            )
        elif policy := _evicting(connection.fields):
            reason = (
                f"maxmemory-policy of {name} is {policy}, so it may delete locks when its memory "
                "is full: set it to noeviction"
            )
        else:
            return
        raise BackendError(SERVICE, reason)


def _evicting(fields: Mapping[str, str]) -> str | None:
    """The policy by which the server may delete locks, which all expire."""
    policy = fields.get("maxmemory_policy", "noeviction")
    return None if policy == "noeviction" or fields.get("maxmemory", "0") == "0" else policy


def described(nodes: Sequence[Node], ttl: float, delay: float) -> ServiceInfo:
    """Ask each server, over a connection of its own. Blocks."""
    versions: list[str] = []
    silent: list[str] = []
    found: dict[str, list[str]] = {}
    for node in nodes:
        try:
            connection = node.connect()
            try:
                fields = fields_of(connection)
            except BROKEN as error:
                raise translate(error, connection.where) from None
            finally:
                connection.close()
        except BackendError as error:
            silent.append(f"it has no vote: {error.reason}")
            continue
        versions.append(fields.get("valkey_version") or fields.get("redis_version", ""))
        for text in _dangers(fields, is_early=delay < ttl):
            found.setdefault(text, []).append(node.names[0])
    warnings = [
        "no fence can refuse a late holder: a pause or a clock that jumps may let two hold a lock",
        *silent,
        *(f"{', '.join(names)}: {text}" for text, names in found.items()),
    ]
    notes = () if delay < ttl else (f"a server has no vote for {delay:g} s after its restart",)
    return ServiceInfo(
        SERVICE,
        ", ".join(dict.fromkeys(versions)),
        tuple(node.names[0] for node in nodes),
        tuple(warnings),
        notes,
    )


def _dangers(fields: Mapping[str, str], *, is_early: bool) -> Iterator[str]:
    """What may take the lock's key from a server, or keep it from voting.

    ``is_early``: it votes sooner than a time-to-live after its restart.
    """
    if fields.get("maxmemory", "0") != "0":
        yield (
            f"maxmemory is {fields.get('maxmemory_human', fields['maxmemory'])}: when it is full, "
            "it has no vote for a new lock; what is held stays held"
        )
    is_kept = fields.get("aof_enabled") == "1" and fields.get("appendfsync") == "always"
    if is_early and not is_kept:
        yield (
            "a restart may lose locks, and restart_delay is less than the ttl: it may vote for two "
            "holders"
        )
    if fields.get("connected_slaves", "0") != "0":
        yield "has a replica: after a failover it may vote for two holders"
