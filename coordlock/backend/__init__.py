"""The contract between the kernel and a coordination service.

`coordlock.backend.contract` states it: what every backend does, and what it does besides for each
capability that it declares. Everything that could be decided once for all services (admission,
deadlines, retries, loss) is decided in the kernel.
"""

from typing import TYPE_CHECKING, Any

from coordlock.backend.capabilities import Capabilities, Capability
from coordlock.backend.contract import Backend, ServiceInfo, SessionInfo, SessionListener
from coordlock.model.handover import Departure

if TYPE_CHECKING:
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


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """What is kept and followed: a plain lock never imports it."""
        import coordlock.backend.data as data
        import coordlock.backend.observation as observation

        for module in (data, observation):
            if name in module.__all__:
                return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
