"""Three nodes of etcd under the nemesis."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Collection, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from coordlock_faults.journal import Journal

from testbed.servers.etcd import EtcdServer
from testbed.systems.system import System, Uncertain
from testbed.truth.etcd import EtcdObserver
from testbed.truth.observer import Observer

__all__ = ["EtcdSystem"]

#: What etcdctl says of what was done already.
_DONE: Final = ("requested lease not found", "required revision has been compacted")


class _Node(EtcdServer):
    """Listens on its own port for peers, and tells them another one."""

    #: Elections among three processes on a busy machine need room; leases of 2 s and more.
    heartbeat, election = 100, 1000
    advertised = 0

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.advertised}"

    def status(self) -> dict[str, Any]:
        """What the node says of itself; empty when it does not answer within a second.

        By etcd's own gateway, which costs no process.
        """
        try:
            with closing(HTTPConnection(self.host, self.port, timeout=1)) as connection:
                connection.request("POST", "/v3/maintenance/status", b"{}")
                reply = json.loads(connection.getresponse().read())
        except (OSError, HTTPException, ValueError):
            return {}
        return dict(reply) if "leader" in reply else {}


class EtcdSystem(System):
    """Each node's peer port and client port has a relay. Leases last 2 s or more."""

    name = "etcd"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.nodes: dict[str, _Node] = {n: _Node(directory / n) for n in ("n1", "n2", "n3")}

    def _address(self, name: str) -> str:
        return self.nodes[name].endpoint.hosts[0]

    def _configure(self) -> None:
        # Relays of a start that failed, because a port was taken, stay until the end, unused.
        for name, node in self.nodes.items():
            node.name = name
            node.advertised = self.network.link(name, node.peer_port)
            self._ports[name] = self.network.link(name, node.port)
        peers = {name: node.peer_url for name, node in self.nodes.items()}
        for node in self.nodes.values():
            node.cluster = peers

    def versions(self) -> dict[str, str]:
        return {"etcd": self.nodes["n1"].status()["version"]}

    def truth(self, root: str, journal: Journal) -> Observer:
        return EtcdObserver(list(self.nodes.values()), root, journal)

    def leader(self) -> str | None:
        leads = [
            (int(status["raftTerm"]), name)
            for name, status in self._statuses()
            if status["leader"] == status["header"]["member_id"]
        ]
        return max(leads)[1] if leads else None

    def is_well(self) -> bool:
        statuses = dict(self._statuses())
        leaders = {status["leader"] for status in statuses.values()}
        return (
            len(statuses) == len(self.nodes)
            and len(leaders) == 1
            and leaders < {status["header"]["member_id"] for status in statuses.values()}
            and all(node.answers() for node in self.nodes.values())
        )

    def _statuses(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, node in self.nodes.items():
            if node.is_running and (status := node.status()):
                yield name, status

    def _etcdctl(self, *arguments: str, stdin: str = "") -> str:
        """Ask the leader, and when it does not answer the others."""
        leader = self.leader()
        failed = ""
        for name in sorted(self.nodes, key=lambda name: name != leader):
            try:
                return self.nodes[name].etcdctl("--command-timeout=2s", *arguments, stdin=stdin)
            except subprocess.CalledProcessError as error:
                if any(done in error.stderr for done in _DONE):
                    return ""
                failed = error.stderr
        raise Uncertain(f"etcdctl {arguments[0]}: {failed}")

    # The operator.

    def queues(self, root: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for key, _ in self._held(root):
            found.setdefault(key.rpartition("/")[0] + "/", []).append(key)
        return found

    def sessions(self, root: str) -> list[str]:
        """The leases that contenders under ``root`` have, in hexadecimal."""
        return sorted({lease for _, lease in self._held(root)})

    def _held(self, root: str) -> Iterator[tuple[str, str]]:
        """Keys in queues under ``root`` that have a lease, and their leases."""
        prefix = f"{root}/"
        reply = json.loads(self._etcdctl("get", "--prefix", prefix, "--write-out=json"))
        for pair in reply.get("kvs", ()):
            key = base64.b64decode(pair["key"]).decode()
            if "lease" in pair and "/" in key.removeprefix(prefix):
                yield key, f"{pair['lease'] & (2**64 - 1):016x}"

    def remove(self, keys: Collection[str]) -> None:
        for key in keys:
            self._etcdctl("del", key)

    def remove_queue(self, queue: str, keys: Collection[str]) -> bool:
        self.remove(keys)
        return True

    def revoke(self, session: str) -> None:
        """End a lease, and so delete the contenders that have it."""
        self._etcdctl("lease", "revoke", session)

    def compact(self, upto: int) -> None:
        """Forget all history before the revision ``upto``."""
        self._etcdctl("compaction", str(upto), "--physical=true")
