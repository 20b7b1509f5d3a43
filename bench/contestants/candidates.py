"""Ways to be elected, as contestants: to acquire is to lead, to release is to resign."""

from __future__ import annotations

import os
import signal
import subprocess
from threading import Event, Thread
from typing import Any, Final

from kazoo.client import KazooClient

import coordlock
from bench.contestants.contestant import Contestant
from bench.contestants.ours import url_of

__all__ = [
    "ETCDCTL_TTL",
    "TTL",
    "EtcdCandidate",
    "EtcdctlCandidate",
    "KazooCandidate",
    "LocalCandidate",
    "ZooKeeperCandidate",
]

#: Seconds for which the service waits for a candidate of which it hears nothing.
TTL: Final = 4.0


def _etcdctl_can_choose() -> bool:
    """Whether this release of etcdctl lets an election's time-to-live be chosen."""
    try:
        done = subprocess.run(["etcdctl", "elect", "--help"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return b"--ttl" in done.stdout + done.stderr


_TTL_OPTION: Final = (f"--ttl={TTL:.0f}",) if _etcdctl_can_choose() else ()
#: That of ``etcdctl elect``: 60 seconds where it cannot be chosen.
ETCDCTL_TTL: Final = TTL if _TTL_OPTION else 60.0


class _Candidate(Contestant):
    scheme: str

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._client = coordlock.connect(url_of(self.scheme, address, root, TTL))

    def acquire(self, name: str) -> coordlock.Term:
        return self._client.election(name).campaign()

    def release(self, held: coordlock.Term) -> None:
        held.resign()

    def close(self) -> None:
        self._client.close()


class ZooKeeperCandidate(_Candidate):
    scheme = "zookeeper"


class EtcdCandidate(_Candidate):
    scheme = "etcd"


class LocalCandidate(_Candidate):
    scheme = "local"


class KazooCandidate(Contestant):
    """kazoo's recipe, which leads for as long as a function runs."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._client = KazooClient(hosts=address, timeout=TTL)
        self._client.start()

    def acquire(self, name: str) -> tuple[Event, Thread]:
        elected, over = Event(), Event()

        def lead() -> None:
            elected.set()
            over.wait()

        election: Any = self._client.Election(f"{self.root}/{name}", str(os.getpid()))
        thread = Thread(target=election.run, args=(lead,), daemon=True)
        thread.start()
        elected.wait()
        return over, thread

    def release(self, held: tuple[Event, Thread]) -> None:
        over, thread = held
        over.set()
        thread.join()

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class EtcdctlCandidate(Contestant):
    """etcd's own command: a process for each candidate."""

    def acquire(self, name: str) -> subprocess.Popen[bytes]:
        command = ["etcdctl", f"--endpoints=http://{self.address}", "elect", *_TTL_OPTION]
        process = subprocess.Popen(
            [*command, f"{self.root}/{name}", str(os.getpid())],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "ETCDCTL_API": "3"},
        )
        assert process.stdout is not None
        if not process.stdout.readline():  # the key, once it leads
            raise RuntimeError("etcdctl was not elected")
        return process

    def release(self, held: subprocess.Popen[bytes]) -> None:
        held.send_signal(signal.SIGINT)
        held.communicate()
