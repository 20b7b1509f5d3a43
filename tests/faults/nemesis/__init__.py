"""What happens to a system and its clients on a bad day, again and again, by a seed."""

from tests.faults.nemesis.catalogue import FAULTS
from tests.faults.nemesis.fault_maker import Clients, FaultMaker, Scene
from tests.faults.nemesis.nemesis import Nemesis
from tests.faults.nemesis.schedule import Episode, Planned, schedule

__all__ = ["FAULTS", "Clients", "Episode", "FaultMaker", "Nemesis", "Planned", "Scene", "schedule"]
