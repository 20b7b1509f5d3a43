"""What a client knows of its session and its service, without asking."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from coordlock.kernel.engine import Engine

__all__ = ["ClientState", "ClientStatus", "state_of"]


class ClientStatus(Enum):
    """What a client knows of its session."""

    NOT_CONNECTED = "not connected yet"  #: no session was opened so far
    CONNECTED = "connected"  #: the service acknowledged the last heartbeat in time
    IN_DOUBT = "in doubt"  #: disconnected or late, but the deadline has not been reached
    LOST = "lost"  #: the session has ended, and no other one is open yet
    CLOSED = "closed"  #: `close` was called


@dataclass(frozen=True, slots=True)
class ClientState:
    """A client's session as it was when it was looked at.

    Attributes:
        status: whether the session is connected, in doubt, lost, closed, or not open yet.
        since: since when the session is connected. In doubt or lost: when the service last answered
            a heartbeat. Not connected yet: since when it does not answer; None where it was not
            asked, or has not had the time to. Closed: None.
        deadline: when the session ends unless another heartbeat is answered; None where there is
            no session, and where sessions have no deadline.
        reason: why the session is in doubt or lost, or could not be opened; else empty.
    """

    status: ClientStatus
    since: datetime | None = None
    deadline: datetime | None = None
    reason: str = ""


def state_of(engine: Engine | None, *, closed: bool) -> ClientState:
    """The state of a client with ``engine``, its own or inherited; None before there is one."""
    if closed:
        return ClientState(ClientStatus.CLOSED)
    if engine is None:
        return ClientState(ClientStatus.NOT_CONNECTED)
    if engine.inherited:
        return ClientState(ClientStatus.LOST, reason="the parent process has it: connect again")
    now = engine.clock.now()

    def instant(when: float) -> datetime | None:
        return datetime.now(UTC) + timedelta(seconds=when - now) if math.isfinite(when) else None

    session, outage = engine.sessions.latest, engine.sessions.outage
    if session is None:
        if outage is None:
            return ClientState(ClientStatus.NOT_CONNECTED)
        return ClientState(ClientStatus.NOT_CONNECTED, instant(outage[0]), reason=outage[1])
    if (ended := session.ended) is not None:
        return ClientState(ClientStatus.LOST, instant(session.answered), reason=str(ended))
    deadline = instant(session.deadline)
    if (doubt := session.suspicion) is not None:
        return ClientState(ClientStatus.IN_DOUBT, instant(session.answered), deadline, doubt)
    return ClientState(ClientStatus.CONNECTED, instant(session.good_since), deadline)
