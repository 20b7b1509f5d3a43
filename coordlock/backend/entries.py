"""Contenders in several queues that are enqueued as one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from coordlock.backend.contract import Addition, Backend
from coordlock.errors import Unsupported
from coordlock.model.contender import Entry, Snapshot
from coordlock.runtime.promise import Promise

__all__ = ["EntrySets", "of"]


class EntrySets(Addition):
    """What a backend adds to the contract when its service changes several queues in one step.

    The rules of `coordlock.backend` hold. A set has one entry or more, and no two of one queue.
    """

    @abstractmethod
    def enqueue_all(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        """Add a contender for each entry, all in one step or none; what `Backend.enqueue` shows.

        The snapshots come in the order of ``entries``, and need not be of one moment.

        Sets and single entries have one order over all queues: of two sets that meet in several
        queues, one stands before the other in all of them. So contenders that wait only for
        earlier ones never wait in a circle. The tokens of a set may be equal.

        Idempotent by the entries' ids: called again after its reply was lost, it finds the set of
        the CURRENT session if all of it stands in its queues. Of a set that is not complete, as
        after an eviction, the rest is removed, and the set is added anew, at the ends of the
        queues. No contender that was added before is ever one of the new set.

        Fails with `BackendError` for more entries than the service takes in one step, and says how
        many it takes; then none was added.

        With ``unless_blocked``, add them only where none of them is blocked in its queue, as
        `Backend.enqueue` says. Otherwise change nothing; no snapshot shows any of them.
        """

    @abstractmethod
    def withdraw_all(self, entries: Sequence[Entry]) -> Promise[bool]:
        """Remove every contender with the entries' ids that this client may have made.

        In one request, if all of them are there; what has gone already keeps no other from leaving.
        True when each entry had one, False when any had none. Called only when no `enqueue_all` of
        the entries is under way; the kernel repeats it after `BackendUnavailable`, and takes no
        answer to a repetition for what the first one did.
        """


def of(backend: Backend) -> EntrySets:
    """``backend``, which changes several queues in one step. Raises `Unsupported` for another."""
    if isinstance(backend, EntrySets):
        return backend
    raise Unsupported(
        f"the {backend.scheme} backend cannot take several locks in one step: take one after the "
        "other, everywhere in the same order"
    )
