"""The service under test, as far as a run has to know it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from coordlock_faults.journal import Journal

from testbed.truth.observer import Observer

__all__ = ["Subject"]


class Subject(ABC):
    """A coordination service that clients of a run use. See `System` for one that suffers faults.

    Attributes:
        name: the service, such as ``etcd``; also the scheme of its URLs, unless it says otherwise.
    """

    name: str

    @abstractmethod
    def url(self, root: str, **options: object) -> str:
        """Where clients find it."""

    def direct_url(self, root: str, **options: object) -> str:
        """The same for those who are not to be disturbed."""
        return self.url(root, **options)

    def versions(self) -> dict[str, str]:
        """The versions of the service's programs, by their names."""
        return {}

    def truth(self, root: str, journal: Journal) -> Observer | None:
        """The observer of ``root``, which writes into ``journal``; not started yet.

        None where the service has no record that could be read.
        """
        return None

    def environment(self, name: str) -> Mapping[str, str]:
        """What the client process called ``name`` is to find in its environment."""
        return {}

    def met(self, name: str, pid: int) -> None:
        """The client process called ``name`` was started."""

    def parted(self, name: str) -> None:
        """It is gone. Idempotent."""
