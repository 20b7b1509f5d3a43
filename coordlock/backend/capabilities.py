"""What a backend declares about the locks that it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coordlock.settings import Reach

__all__ = ["Capabilities"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend declares; the contract suite fails one that does not keep it.

    Attributes:
        reach: which clients its locks exclude: see `coordlock.settings.Reach`.
        leased: sessions end by a time-to-live that heartbeats extend. Otherwise the session lives
            exactly as long as the process, and its time-to-live is infinite.
        durable: tokens go on growing after a full restart of the service.
        ordered: contenders of a queue stand in the order in which the service took them: first
            come, first served.
        fenced: each contender's token is greater than those of all that stood in its queue before
            it, also of those that have left.
        one_step: which entries `Backend.enqueue` adds with ``unless_blocked`` in one step, for what
            it costs without: "all", those with a "mode" that come alone, or "none". The kernel
            enqueues others with ``unless_blocked`` once such a try was refused.
    """

    reach: Reach
    leased: bool
    durable: bool
    ordered: bool
    fenced: bool
    one_step: Literal["all", "mode", "none"] = "none"
