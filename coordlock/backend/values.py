"""A value that a contender publishes beside its owner."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from coordlock.backend.contract import Addition, Backend
from coordlock.errors import Unsupported
from coordlock.model.contender import Contender
from coordlock.runtime.promise import Promise

__all__ = ["PublishedValues", "of"]


class PublishedValues(Addition):
    """What a backend adds to the contract when its contenders can carry a value.

    The rules of `coordlock.backend` hold. `Backend.enqueue` then publishes ``entry.value`` in the
    same step as it adds the contender. Snapshots with owners, and those of observations, carry
    ``value`` and ``version``. A value leaves with its contender.

    The claim of a convertible contender is what it publishes. So snapshots of every kind carry that
    of each one that they list, with its version, as it was at that moment or later.
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

    @abstractmethod
    def watch_value(
        self, contender: Contender, revision: int, changed: Callable[[], None]
    ) -> Callable[[], None]:
        """Call ``changed`` once, when ``contender`` has left or another value been published.

        Another than that at ``contender.version``, after ``revision``; at once, when that has
        happened already, and otherwise never. The rest is as for `Backend.watch`.
        """


def of(backend: Backend) -> PublishedValues:
    """``backend``, whose contenders can publish. Raises `Unsupported` for another."""
    if isinstance(backend, PublishedValues):
        return backend
    raise Unsupported(
        f"the {backend.scheme} backend keeps no values with contenders, so it has no convertible "
        "locks, elections and groups"
    )
