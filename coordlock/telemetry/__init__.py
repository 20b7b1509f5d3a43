"""What clients do, to be seen: events for a listener, metrics for Prometheus and OpenTelemetry.

`on_event` and `Client.on_event` call a listener of yours with events.
`coordlock.telemetry.prometheus` and `coordlock.telemetry.otel` measure all clients of a process.
"""

from coordlock.model.events import (
    AcquireEvent,
    AcquireFailed,
    AcquireStarted,
    AcquireWaiting,
    DeadlockFound,
    Event,
    FenceRefused,
    Granted,
    HeartbeatAnswered,
    ItemEnded,
    JobEnded,
    LockEvent,
    Lost,
    Released,
    ReleaseRequested,
    SessionChanged,
    Upgraded,
)
from coordlock.runtime.recorder import Subscription, on_event
from coordlock.telemetry.groups import by_prefix, collapse_ids

__all__ = [
    "AcquireEvent",
    "AcquireFailed",
    "AcquireStarted",
    "AcquireWaiting",
    "DeadlockFound",
    "Event",
    "FenceRefused",
    "Granted",
    "HeartbeatAnswered",
    "ItemEnded",
    "JobEnded",
    "LockEvent",
    "Lost",
    "ReleaseRequested",
    "Released",
    "SessionChanged",
    "Subscription",
    "Upgraded",
    "by_prefix",
    "collapse_ids",
    "on_event",
]
