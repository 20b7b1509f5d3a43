"""What a backend declares about its service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from coordlock.settings import Reach

__all__ = ["Capabilities", "Capability", "reason_for"]

#: What only some services can do.
Capability = Literal["ordered", "fenced", "sets", "publishing", "data"]

#: Why something can't be made where the service lacks a capability.
_REASONS: Final[dict[Capability, str]] = {
    "ordered": (
        "keeps its contenders in no order, so it has exclusive locks alone, and shows no queue"
    ),
    "fenced": "gives no tokens that always grow, so nothing can be fenced by them",
    "sets": (
        "cannot take several locks in one step: take one after the other, everywhere in the same "
        "order"
    ),
    "publishing": (
        "keeps no values with contenders, so it has no upgradeable locks, elections and groups, "
        "and finds no deadlocks"
    ),
    "data": (
        "keeps no data, so it has no values, counters, latches, barriers and work queues, nobody "
        "can be asked to release, and a grant guards no writes; for files there is "
        "coordlock.fencing.files.FileFence, and others for databases and HTTP"
    ),
}


def reason_for(capability: Capability) -> str:
    """What a service without ``capability`` can't do, to follow its name."""
    return _REASONS[capability]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend declares; the contract suite fails one that does not keep it.

    Attributes:
        reach: which clients its locks exclude: see `coordlock.settings.Reach`.
        leased: sessions end by a time-to-live that heartbeats extend. Otherwise the session lives
            exactly as long as the process, and its time-to-live is infinite.
        durable: tokens go on growing after a full restart of the service.
        ordered: contenders of a queue stand in the order in which the service took them: first
            come, first served. They can be read, watched and followed.
        fenced: each contender's token is greater than those of all that stood in its queue before
            it, also of those that have left.
        sets: contenders of several queues are enqueued in one step.
        publishing: a contender can publish a value. Only where contenders are ordered.
        data: the service keeps values under keys, also without a lock, and changes them in one step
            under conditions.
        one_step: which entries `Backend.enqueue` adds with ``unless_blocked`` in one step, for what
            it costs without: "all", those with a "mode" that come alone, or "none". The kernel
            enqueues others with ``unless_blocked`` once such a try was refused.
    """

    reach: Reach
    leased: bool
    durable: bool
    ordered: bool
    fenced: bool
    sets: bool = False
    publishing: bool = False
    data: bool = False
    one_step: Literal["all", "mode", "none"] = "none"
