"""The servers of a Redlock: which of them may vote, and what `coordlock doctor` shows of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from coordlock.backend import ServiceInfo
from coordlock.errors import BackendError, BackendUnavailable
from coordlock.runtime.log import Log
from coordlock_redis.describe import fields_of, version_of
from coordlock_redis.servers import Connection, Servers, info

__all__ = ["SERVICE", "Node", "Runs", "described"]

log = Log("coordlock")

SERVICE: Final = "redlock"


@dataclass
class Runs:
    """Which run of a server each node has reached, and which refusals the log shows."""

    by_name: dict[str, bytes] = field(default_factory=dict)
    logged: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def claim(self, name: str, run: bytes) -> str | None:
        """Note that ``name`` reaches ``run``; the other node that does, which keeps it."""
        with self.lock:
            self.by_name.pop(name, None)  # two addresses may change places
            for other, known in self.by_name.items():
                if known == run:
                    return other
            self.by_name[name] = run
            return None

    def log(self, refusal: str) -> None:
        """Log ``refusal`` once: every request connects again."""
        with self.lock:
            is_new = refusal not in self.logged
            self.logged.add(refusal)
        if is_new:
            log.warning("a server of redlock:// has no vote: %s", refusal)


@dataclass
class Node(Servers):
    """One server of a Redlock.

    Attributes:
        runs: shared by all nodes of the client.
    """

    runs: Runs = field(default_factory=Runs, repr=False)

    def connect(self, patience: float | None = None) -> Connection:
        """A connection, unless the server can have no vote."""
        try:
            return super().connect(patience)
        except BackendError as error:
            if not isinstance(error, BackendUnavailable):
                self.runs.log(error.reason)
            raise

    def _check(self, connection: Connection) -> None:
        [name] = self.names
        [memory] = connection.ask(("INFO", "memory"))
        if connection.is_cluster:
            reason = (
                f"{name} is a node of a cluster, which keeps a key on one node only: "
                "name servers that know nothing of each other, or use redis:// for the cluster"
            )
        elif (other := self.runs.claim(name, connection.run)) is not None:
            reason = f"{name} is the same server as {other}, which votes once: name another server"
        elif policy := _evicting(info(memory)):
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
            fields = fields_of(node)
        except BackendError as error:
            silent.append(f"it has no vote: {error.reason}")
            continue
        versions.append(version_of(fields))
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
