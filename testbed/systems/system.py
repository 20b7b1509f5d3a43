"""The nodes of a coordination service under the nemesis, and what their operator does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import ClassVar, Final, Self

from coordlock_faults.journal import Journal

from coordlock.testing.waiting import eventually
from testbed.network.network import Network
from testbed.servers.cluster import start_together
from testbed.servers.endpoint import Endpoint
from testbed.servers.process import ServerProcess
from testbed.systems.wall_clocks import WallClocks
from testbed.truth.observer import Observer

__all__ = ["System", "Uncertain"]


class Uncertain(Exception):
    """What the operator asked for may be done, or may be yet, or never."""


class System(ABC):
    """Nodes, ``n1`` and so on, that reach each other, and that clients reach, by ``network``.

    A context manager that starts and kills them. Nodes die with the thread that started them; so
    whoever restarts them lives longer than the system.

    Attributes:
        name: the service, such as ``etcd``; also the scheme of its URLs, unless it says otherwise.
        nodes: by name.
        network: all links.
        clocks: the wall clocks of processes.
        size: how many nodes there are.
        keeps_data: whether it keeps what it has acknowledged, whatever its nodes suffer.
    """

    name: str
    size: ClassVar[int] = 3
    keeps_data: ClassVar[bool] = True

    nodes: Mapping[str, ServerProcess]

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.network: Final = Network()
        self.clocks: Final = WallClocks(directory / "clocks")
        self._ports: dict[str, int] = {}

    def url(self, root: str, **options: object) -> str:
        """All nodes, through the network."""
        hosts = tuple(f"127.0.0.1:{self._ports[name]}" for name in self.nodes)
        return Endpoint(self.name, hosts).url(root, **options)

    def direct_url(self, root: str, **options: object) -> str:
        """The same past the network."""
        hosts = tuple(self._address(name) for name in self.nodes)
        return Endpoint(self.name, hosts).url(root, **options)

    @abstractmethod
    def _address(self, name: str) -> str:
        """Where the node serves clients, past the network."""

    @abstractmethod
    def _configure(self) -> None:
        """Link everything, and tell the nodes where they find each other."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """The versions of the service's programs, by their names."""

    def truth(self, root: str, journal: Journal) -> Observer | None:
        """The observer of ``root``, which writes into ``journal``; not started yet.

        None where the service has no record that could be read.
        """
        return None

    def environment(self, name: str) -> Mapping[str, str]:
        """What the client process called ``name`` is to find in its environment."""
        return self.clocks.clock(name).environment

    def met(self, name: str, pid: int) -> None:
        """The client process called ``name`` was started."""
        self.network.know(name, pid)

    def parted(self, name: str) -> None:
        """It is gone. Idempotent."""
        self.network.forget(name)

    def watched(self, journal: Journal) -> AbstractContextManager[None]:
        """While faults are made, write into ``journal`` what the nodes make of them."""
        return nullcontext()

    # Nodes.

    @abstractmethod
    def leader(self) -> str | None:
        """The node that leads now; the latest, where one has not noticed yet that it does not."""

    @abstractmethod
    def is_well(self) -> bool:
        """Whether every node runs, answers, and agrees on the leader. Bounded to seconds."""

    def start_node(self, name: str) -> None:
        """Start a node without waiting for it."""
        node = self.nodes[name]
        node.kill()  # what is left of one that ended by itself
        node.spawn()
        self.network.know(name, node.pid)

    def kill_node(self, name: str) -> None:
        """Kill a node, paused or not, and see it dead. Idempotent."""
        self.nodes[name].kill()
        self.network.forget(name)

    # The operator, with the service's own tools, past the network. All raise `Uncertain`.

    @abstractmethod
    def queues(self, root: str) -> dict[str, list[str]]:
        """The contenders under ``root`` now, keys or paths, by the queue's prefix or path."""

    def contenders(self, root: str) -> list[str]:
        """The same, of all queues."""
        return [key for keys in self.queues(root).values() for key in keys]

    @abstractmethod
    def remove(self, keys: Collection[str]) -> None:
        """Delete these contenders and nothing else; those that are gone already are no error."""

    @abstractmethod
    def remove_queue(self, queue: str, keys: Collection[str]) -> bool:
        """Delete these contenders of a queue, and the queue itself if nobody else is in it.

        Whether the queue was deleted. Services that have none but the contenders say yes.
        """

    # Life.

    def __enter__(self) -> Self:
        self.network.start()
        try:
            start_together(list(self.nodes.values()), self._configure)
            for name, node in self.nodes.items():
                self.network.know(name, node.pid)
            eventually(self.is_well, f"{self.name} to be well", within=60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.nodes:
            self.kill_node(name)
        self.network.stop()
