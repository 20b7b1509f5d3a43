"""The in-process reference model: for users' unit tests, contract tests and simulation.

``coordlock.connect("memory://name")`` coordinates the threads and tasks of one process: all clients
of the same name share a `MemoryService`. Under `VirtualTime` nothing waits, and `Faults`
make the network lose, delay and reorder what it is told to.
"""

from coordlock_memory.backend import MemoryBackend
from coordlock_memory.faults import Fault, Faults
from coordlock_memory.service import MemoryService
from coordlock_memory.virtual import VirtualTime, VirtualTimers

__all__ = ["Fault", "Faults", "MemoryBackend", "MemoryService", "VirtualTime", "VirtualTimers"]
