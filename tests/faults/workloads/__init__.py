"""What clients do in a run: the workloads by name."""

from __future__ import annotations

from typing import Final

from tests.faults.workloads.guarded import Guarded
from tests.faults.workloads.modes import Modes
from tests.faults.workloads.permits import Permits
from tests.faults.workloads.queue import Queue
from tests.faults.workloads.register import Register
from tests.faults.workloads.workload import Workload

__all__ = ["WORKLOADS"]

WORKLOADS: Final[dict[str, type[Workload]]] = {
    "register": Register,
    "modes": Modes,
    "permits": Permits,
    "queue": Queue,
    "guarded": Guarded,
}
