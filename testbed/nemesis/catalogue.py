"""All faults there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from testbed.nemesis import clocks, nodes, operators, people, postgresql, redis
from testbed.nemesis.fault_maker import FaultMaker
from testbed.nemesis.links import LINK_FAULTS

__all__ = ["FAULTS", "fitting"]

#: By name.
FAULTS: Final[Mapping[str, type[FaultMaker]]] = {
    fault.name: fault
    for fault in (
        *LINK_FAULTS,
        *(
            getattr(module, name)
            for module in (nodes, people, clocks, operators, postgresql, redis)
            for name in module.__all__
        ),
    )
}


def fitting(names: Iterable[str], system: str, *, keeps_data: bool = False) -> list[str]:
    """Those that are for the ``system``, in order; with ``keeps_data``, that lose none of its data.

    Raises KeyError for a name that is not in `FAULTS`.
    """
    return [
        name
        for name in sorted(names)
        if system in FAULTS[name].systems and not (keeps_data and FAULTS[name].loses_data)
    ]
