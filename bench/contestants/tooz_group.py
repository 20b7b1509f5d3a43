"""tooz's groups: each member is a coordinator, with a session of its own."""

from __future__ import annotations

from typing import Any

from tooz.coordination import get_coordinator

from bench.contestants.group import Group

__all__ = ["ToozEtcdGroup", "ToozZooKeeperGroup"]


class _ToozGroup(Group):
    scheme: str

    def connect(self, number: int) -> Any:
        coordinator = get_coordinator(f"{self.scheme}://{self.address}", b"member-%d" % number)
        coordinator.start()
        return coordinator

    def disconnect(self, member: Any) -> None:
        member.stop()

    def make(self, name: str) -> None:
        self._members[0].create_group(name.encode()).get()

    def join(self, member: Any, name: str) -> None:
        member.join_group(name.encode(), b"10.0.0.5:8080").get()

    def leave(self, member: Any, name: str) -> None:
        member.leave_group(name.encode()).get()

    def count(self, member: Any, name: str) -> int:
        return len(member.get_members(name.encode()).get())


class ToozZooKeeperGroup(_ToozGroup):
    scheme = "zookeeper"


class ToozEtcdGroup(_ToozGroup):
    scheme = "etcd3+http"
