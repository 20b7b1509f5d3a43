"""All faults there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.faults.nemesis import clocks, links, nodes, operators, people
from tests.faults.nemesis.fault import Fault

__all__ = ["FAULTS"]

#: By name.
FAULTS: Final[Mapping[str, type[Fault]]] = {
    fault.name: fault
    for module in (nodes, links, people, clocks, operators)
    for fault in (getattr(module, name) for name in module.__all__)
}
