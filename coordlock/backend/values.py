"""A value that a contender publishes beside its owner."""

from __future__ import annotations

from abc import ABC, abstractmethod

from coordlock.model.contender import Contender
from coordlock.runtime.promise import Promise

__all__ = ["PublishedValues"]


class PublishedValues(ABC):
    """What a backend adds to the contract when its contenders can carry a value.

    The rules of `coordlock.backend` hold. `Backend.enqueue` then publishes ``entry.value`` in the
    same step as it adds the contender. Snapshots with owners, and those of observations, carry
    ``value`` and ``version``. A value leaves with its contender.
    """

    @abstractmethod
    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:
        """Set the value of an own contender from ``version`` to ``version + 1``, in its place.

        Its place, token and owner stay, and it is no departure. ``version`` is that of the value
        before: 1 from the contender's beginning.

        Idempotent: called again after its reply was lost, it succeeds where the contender has this
        value at ``version + 1``. So a caller first brings one change to its end and then begins the
        next, and no change that arrives late undoes a newer one.

        Fails with `Evicted` when the contender is not in its queue, with `VersionMismatch`, whose
        key is the contender's, for another version, and with `BackendError` for a value that is too
        large. Then nothing was changed. The kernel repeats it after `BackendUnavailable`.
        """
