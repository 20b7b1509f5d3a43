"""Servers that need each other's addresses before any of them can answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Generic, Self, TypeVar

from coordlock.testing.waiting import eventually
from testbed.servers.process import PortTaken, ServerProcess

__all__ = ["Cluster", "start_together"]

S = TypeVar("S", bound=ServerProcess)


class Cluster(Generic[S]):
    """Servers on this machine; ``members`` are stopped, killed and paused one by one."""

    members: list[S]

    def configure(self) -> None:
        """Tell the members of each other's ports."""

    def leader(self) -> S:
        """The member that leads; waits until there is one."""
        found: list[S] = []

        def look() -> bool:
            found.extend(member for member in self.members if member.leads())
            return bool(found)

        eventually(look, "a leader")
        return found[0]

    def __enter__(self) -> Self:
        start_together(self.members, self.configure)
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()


def start_together(members: Sequence[ServerProcess], configure: Callable[[], None]) -> None:
    """Start ``members`` and wait until all answer; ``configure`` tells them of each other's ports.

    When a port was taken meanwhile, all start over with other ports and without data, because the
    addresses of a cluster are part of its data.
    """
    for _ in range(5):
        configure()
        try:
            for member in members:
                member.spawn()
            for member in members:
                member.wait_until_answers()
            return
        except BaseException as error:
            for member in members:
                member.kill()
            if not isinstance(error, PortTaken):
                raise
        for member in members:
            shutil.rmtree(member.data, ignore_errors=True)
            member.choose_ports()
    raise PortTaken("five times other ports, and each time one was taken")
