"""coordlock's groups, with a client for each member."""

from __future__ import annotations

from typing import Any

import coordlock
from bench.contestants.group import Group

__all__ = ["EtcdGroup", "ZooKeeperGroup"]


class _OurGroup(Group):
    scheme: str

    def connect(self, number: int) -> tuple[coordlock.Client, list[coordlock.types.Membership]]:
        url = f"{self.scheme}://{self.address}{self.root}?ttl=60s"
        return coordlock.connect(url), []

    def disconnect(self, member: Any) -> None:
        member[0].close()

    def join(self, member: Any, name: str) -> None:
        client, joined = member
        joined.append(client.group(name).join(b"10.0.0.5:8080"))

    def leave(self, member: Any, name: str) -> None:
        member[1].pop().release()

    def count(self, member: Any, name: str) -> int:
        return len(member[0].group(name).members())


class ZooKeeperGroup(_OurGroup):
    scheme = "zookeeper"


class EtcdGroup(_OurGroup):
    scheme = "etcd"
