"""What clients do in a run: the workloads by name."""

from __future__ import annotations

from typing import Final

from tests.faults.clients.workloads.crowd import Crowd
from tests.faults.clients.workloads.guarded import Guarded
from tests.faults.clients.workloads.modes import Modes
from tests.faults.clients.workloads.permits import Permits
from tests.faults.clients.workloads.queue import Queue
from tests.faults.clients.workloads.register import Register
from tests.faults.clients.workloads.workload import Workload

__all__ = ["WORKLOADS"]

WORKLOADS: Final[dict[str, type[Workload]]] = {
    "register": Register,
    "modes": Modes,
    "permits": Permits,
    "queue": Queue,
    "guarded": Guarded,
    "crowd": Crowd,
}
