"""etcd's own command: a process for each lock that is held."""

from __future__ import annotations

import os
import signal
import subprocess

from bench.contestants.contestant import Contestant

__all__ = ["EtcdctlLock"]


class EtcdctlLock(Contestant):
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
