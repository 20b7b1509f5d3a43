"""What clients do in a run: the workloads by name."""

from __future__ import annotations

from typing import Final

from testbed.clients.workloads.convert import Convert
from testbed.clients.workloads.deadlock import Deadlock
from testbed.clients.workloads.guarded import Guarded
from testbed.clients.workloads.publishing import Elect, Gather
from testbed.clients.workloads.queue import Queue
from testbed.clients.workloads.register import Modes, Register
from testbed.clients.workloads.several import Multi, Tree
from testbed.clients.workloads.values import Values
from testbed.clients.workloads.work import Work
from testbed.clients.workloads.workload import Workload

__all__ = ["WORKLOADS"]

WORKLOADS: Final[dict[str, type[Workload]]] = {
    "register": Register,
    "modes": Modes,
    "queue": Queue,
    "guarded": Guarded,
    "multi": Multi,
    "tree": Tree,
    "deadlock": Deadlock,
    "convert": Convert,
    "elect": Elect,
    "gather": Gather,
    "values": Values,
    "work": Work,
}
