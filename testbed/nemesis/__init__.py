"""What happens to a system and its clients on a bad day, again and again, by a seed."""

from testbed.nemesis.catalogue import FAULTS, fitting
from testbed.nemesis.fault_maker import Clients, FaultMaker, Scene
from testbed.nemesis.nemesis import Nemesis
from testbed.nemesis.schedule import Episode, Planned, schedule

__all__ = [
    "FAULTS",
    "Clients",
    "Episode",
    "FaultMaker",
    "Nemesis",
    "Planned",
    "Scene",
    "fitting",
    "schedule",
]
