"""All faults there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.faults.nemesis import clocks, links, nodes, operators, people
from tests.faults.nemesis.fault_maker import FaultMaker

__all__ = ["FAULTS"]

#: By name.
FAULTS: Final[Mapping[str, type[FaultMaker]]] = {
    fault.name: fault
    for module in (nodes, links, people, clocks, operators)
    for fault in (getattr(module, name) for name in module.__all__)
}
