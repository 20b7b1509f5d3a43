"""Up to when a session certainly lives: what the leader knows, not what a follower has heard."""

from __future__ import annotations

from typing import Final

__all__ = ["BEAT_GAP", "Lifetime"]

#: A follower's report is on its way after this part of the time-to-live at the latest: it is due
#: every half tick, and a session takes two ticks at least.
_REPORT: Final = 1 / 4
#: Heartbeats that are this part of the time-to-live apart prove the one before, if that was
#: answered in time.
BEAT_GAP: Final = 0.3


class Lifetime:
    """The heartbeats of a session, and which of them the leader knows of.

    The leader alone ends sessions. A follower reports the sessions that it has heard from only in
    its answers to the leader's pings, every half tick. So a follower that dies takes its last
    heartbeats along (see ``Learner.ping`` in ZooKeeper's server). But what it sends arrives in
    order. So a heartbeat that the leader answered proves that the report before it has
    arrived, with every heartbeat that the follower had answered before that report was due.

    Only kazoo's thread for answers uses it. ``born`` is a moment not later than that when the
    leader first heard of the session.
    """

    def __init__(self, born: float) -> None:
        #: What the leader certainly knows, and the later ones as (sent, acknowledged).
        self._known = born
        self._recent: list[tuple[float, float]] = []

    def proven(self, sent: float, acknowledged: float, ttl: float) -> float:
        """Seconds from ``sent`` for which the session lives, now that this one is acknowledged."""
        due = sent - ttl * _REPORT
        known = [beat for beat in self._recent if beat[1] <= due]
        if known:
            self._known = max(self._known, *(beat[0] for beat in known))
        self._recent = [beat for beat in self._recent if beat[1] > due]
        self._recent.append((sent, acknowledged))
        return ttl - (sent - self._known)
