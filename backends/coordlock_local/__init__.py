"""Locks between the processes of one machine, kept in files; the default without configuration.

No daemon and no dependency: the order is kept in a directory, and the operating system's kernel
tells which processes live. A process that dies, by SIGKILL too, leaves its queues at once.
"""

from coordlock_local.backend import LocalBackend

__all__ = ["LocalBackend"]
