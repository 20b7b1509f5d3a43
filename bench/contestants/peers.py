"""Locks of other libraries, as they come."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from typing import Any

import filelock
import psycopg
import redis
from kazoo.client import KazooClient

from bench.contestants.contestant import SERVER, Contestant

__all__ = ["EtcdctlLock", "FileLock", "KazooLock", "RedisPy", "ShedLock"]


class KazooLock(Contestant):
    """The recipe of kazoo."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._client = KazooClient(hosts=address)
        self._client.start()
        self._locks: dict[str, Any] = {}

    def acquire(self, name: str) -> Any:
        # One object for all turns: a new one would look for the parents each time.
        lock = self._locks.setdefault(name, self._client.Lock(f"{self.root}/{name}"))
        lock.acquire()
        return lock

    def release(self, held: Any) -> None:
        held.release()

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class EtcdctlLock(Contestant):
    """etcd's own command: a process for each lock that is held."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        if shutil.which("etcdctl") is None:
            raise FileNotFoundError("there is no etcdctl on the path")

    def acquire(self, name: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["etcdctl", f"--endpoints=http://{self.address}", "lock", f"{self.root}/{name}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "ETCDCTL_API": "3"},
        )
        assert process.stdout is not None
        if not process.stdout.readline():  # the key, once it is held
            raise RuntimeError("etcdctl did not acquire")
        return process

    def release(self, held: subprocess.Popen[bytes]) -> None:
        held.send_signal(signal.SIGINT)
        held.communicate()


class RedisPy(Contestant):
    """redis-py's own: a key with an expiry; a waiter asks again every 100 ms."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._client: Any = redis.Redis(host=self.host, port=int(self.port))

    def acquire(self, name: str) -> Any:
        lock = self._client.lock(f"{self.root}:{name}", timeout=30)
        lock.acquire()
        return lock

    def release(self, held: Any) -> None:
        held.release()

    def close(self) -> None:
        self._client.close()


class ShedLock(Contestant):
    """The two statements of ShedLock, which does not wait: here it asks again every 50 ms."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._execute = psycopg.connect(SERVER.format(address), autocommit=True).execute
        self._execute(
            "SELECT pg_advisory_xact_lock(1); "  # others create it at the same time
            "CREATE TABLE IF NOT EXISTS lock(name text PRIMARY KEY, until timestamptz)"
        )

    def acquire(self, name: str) -> str:
        lock = (
            "INSERT INTO lock AS l VALUES (%s, now() + interval '30 s') ON CONFLICT (name) "
            "DO UPDATE SET until = excluded.until WHERE l.until <= now()"
        )
        while not self._execute(lock, [name]).rowcount:
            time.sleep(0.05)
        return name

    def release(self, held: str) -> None:
        self._execute("UPDATE lock SET until = now() WHERE name = %s", [held])


class FileLock(Contestant):
    """filelock: it asks again every 50 ms."""

    def acquire(self, name: str) -> Any:
        lock = filelock.FileLock(os.path.join(self.address, f"{name}.filelock"))
        lock.acquire()
        return lock

    def release(self, held: Any) -> None:
        held.release()
