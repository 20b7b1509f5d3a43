"""All faults there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from testbed.nemesis import clocks, links, nodes, operators, people
from testbed.nemesis.fault_maker import FaultMaker

__all__ = ["FAULTS"]

#: By name.
FAULTS: Final[Mapping[str, type[FaultMaker]]] = {
    fault.name: fault
    for module in (nodes, links, people, clocks, operators)
    for fault in (getattr(module, name) for name in module.__all__)
}
