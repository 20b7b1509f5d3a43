"""Locks between the processes of one machine, kept in files; what holds when nothing is configured.

No daemon and no dependency: the order is kept in a directory, and the operating system's kernel
tells who lives. A process that dies, by SIGKILL too, leaves its queues at once.
"""

from coordlock_local.backend import LocalBackend

__all__ = ["LocalBackend"]
