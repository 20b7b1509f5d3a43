"""The contract between the kernel and a coordination service.

`coordlock.backend.contract` states it: what every backend does, and what it does besides for each
capability that it declares. Everything that could be decided once for all services (admission,
deadlines, retries, loss) is decided in the kernel.
"""

from coordlock.backend.capabilities import Capabilities, Capability
from coordlock.backend.contract import Backend, ServiceInfo, SessionInfo, SessionListener
from coordlock.backend.data import (
    Delete,
    Expect,
    Listing,
    Operation,
    Put,
    Read,
    VersionedValue,
    Written,
)
from coordlock.backend.observation import Observation, Queue, View
from coordlock.model.handover import Departure

__all__ = [
    "Backend",
    "Capabilities",
    "Capability",
    "Delete",
    "Departure",
    "Expect",
    "Listing",
    "Observation",
    "Operation",
    "Put",
    "Queue",
    "Read",
    "ServiceInfo",
    "SessionInfo",
    "SessionListener",
    "VersionedValue",
    "View",
    "Written",
]
