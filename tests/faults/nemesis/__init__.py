"""What happens to a system and its clients on a bad day, again and again, by a seed."""

from tests.faults.nemesis.catalogue import FAULTS
from tests.faults.nemesis.fault import Clients, Fault, Scene
from tests.faults.nemesis.nemesis import Nemesis
from tests.faults.nemesis.schedule import Planned, Step, schedule

__all__ = ["FAULTS", "Clients", "Fault", "Nemesis", "Planned", "Scene", "Step", "schedule"]
