"""Small values that a service keeps: read, followed, and written under a condition."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from coordlock.backend.contract import Addition, Backend
from coordlock.backend.observation import Observation
from coordlock.errors import Unsupported
from coordlock.model.contender import Contender
from coordlock.runtime.promise import Promise

__all__ = [
    "Data",
    "Delete",
    "Expect",
    "Listing",
    "Operation",
    "Put",
    "Stored",
    "Transactions",
    "of",
]


@dataclass(frozen=True, slots=True)
class Stored:
    """What a key holds.

    Attributes:
        data: the value.
        version: 1 when the key was made, one more with each write since then.
    """

    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    """Write ``data``; make the key where there is none."""

    key: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the key; nothing where there is none."""

    key: str


@dataclass(frozen=True, slots=True)
class Expect:
    """Fail the transaction unless the key is at ``version`` before it; 0 where there is none."""

    key: str
    version: int


Operation = Put | Delete | Expect


class Transactions(Addition):
    """What a backend adds to the contract when its service can guard writes by a contender.

    The rules of `coordlock.backend` hold. Both fail with `Evicted` when the contender is not in its
    queue.
    """

    @abstractmethod
    def fetch(self, contender: Contender, key: str) -> Promise[Stored | None]:
        """Read ``key`` at a moment at which ``contender`` stands in its queue; None when absent.

        Shows every write that was guarded by a contender for whose departure this one waited, and
        all of its own that were acknowledged. The kernel repeats it after `BackendUnavailable`.
        """

    @abstractmethod
    def commit(
        self,
        contender: Contender,
        operations: Sequence[Operation],
        others: Sequence[Contender] = (),
    ) -> Promise[None]:
        """Do all of ``operations``, if ``contender`` stands in its queue then, or nothing.

        So do ``others``, which were enqueued with it.

        Every `Expect` is about the state before, wherever it stands; the others come in any order,
        no two of them with the same key. There may be none: also then the answer is the service's
        as a whole, not one server's. Fails with `VersionMismatch` for an unmet `Expect`, and with
        `BackendUnavailable` when it may have been done; every other error says that it was not.
        Neither the kernel nor a library beneath may repeat it, unless it certainly did nothing.
        """


@dataclass(frozen=True, slots=True)
class Listing:
    """What is kept in one place at one moment.

    Attributes:
        values: what each key holds, in the order of the keys' code points.
        revision: the service's state that this shows; a later state never has a smaller one.
    """

    values: Mapping[str, Stored]
    revision: int


class Data(Addition):
    """What a backend adds to the contract when its service keeps values, also without a lock.

    The rules of `coordlock.backend` hold. Keys are absolute paths, which the caller has checked.
    ``where`` is a key, or a folder, which is a path that ends with a slash: all keys that have one
    part more. A folder exists as far as it has keys. No key is a contender, so a caller writes
    outside of the root, or below it under ``@``. No method needs a session, unless it has guards.
    """

    @abstractmethod
    def read(self, where: str) -> Promise[Listing]:
        """Read all that is kept at ``where``, all at one moment between this call and the answer.

        So it shows each write that was acknowledged to any client before this call. The kernel
        repeats it after `BackendUnavailable`.
        """

    @abstractmethod
    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[int]:
        """Do all of ``operations``, or nothing; the revision that shows them.

        A listing with that revision or a later one shows them, or what was written after them.

        Every `Expect` is about the state before, wherever it stands; the others come in any order,
        no two of them with the same key. Every one of ``guards`` must stand in its queue in that
        same step. Fails with `Evicted` for one that does not, with `VersionMismatch` for an unmet
        `Expect`, and with `BackendError` for what the service does not take, such as too much data;
        then nothing was done. Fails with `BackendUnavailable` when it may have been done, or may be
        yet. Neither the kernel nor a library beneath may repeat it, unless it certainly did
        nothing: to find out is the caller's part, by what it expects and reads.
        """

    @abstractmethod
    def follow(self, where: str, news: Callable[[], None]) -> Observation[Listing]:
        """Observe all that is kept at ``where``: see `Observation`.

        Each state is complete and was so at one moment: a write of several keys shows as a whole.
        """


def of(backend: Backend) -> Data:
    """``backend``, whose service keeps data. Raises `Unsupported` for another."""
    if isinstance(backend, Data):
        return backend
    raise Unsupported(
        f"the {backend.scheme} backend keeps no data without a lock, so it has no values, "
        "counters, latches and barriers, and nobody can be asked to release"
    )
