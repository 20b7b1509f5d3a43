"""Locks between the processes of one machine, kept in files; the default without configuration.

No daemon and no dependency: the order is kept in a directory, and the operating system's kernel
tells which processes live. A process that dies, by SIGKILL too, leaves its queues at once.

::

    backend      the contract, put together from the parts below

  what all processes share
    directory    the state directory, and which files are where
    counter      the directory's lock, whose holder takes the next token and adds contenders
    queue        one queue: adding to it, reading it, removing the dead
    slots        its file: an index and a record for each contender
    values       a file for each value that a contender publishes
    data         keys and their values, in SQLite

  this process
    session      a locked file, by which others see that the process lives
    contenders   the session's own contenders
    attempts     what waits for a lock of the directory: here for an instant, then in a thread
    leaving      leaves a queue, and writes to those that wait for that
    pipes        how processes tell each other what has changed
    listening    the thread that waits for that, and for the ends of other processes
    watcher      watches contenders until they leave
    followers    has data and queues read when they change
    flock        locks on files; errors
"""

from coordlock_local.backend import LocalBackend

__all__ = ["LocalBackend"]
