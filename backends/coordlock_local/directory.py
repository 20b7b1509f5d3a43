"""The state directory: where it is, what must hold for it, and how it is laid out.

::

    <root>/counter                        the version of all these files, and the next token; its
                                          lock guards the order (counter.py)
    <root>/sessions/<session>             locked by a process for as long as it lives (session.py)
    <root>/pipes/<session>                written into when it may have to look (pipes.py)
    <root>/queues/<name>                  the contenders of one lock (slots.py)
    <root>/values/<session>-<entry id>    what that contender publishes (values.py)
    <root>/data                           what applications keep, in SQLite (data.py), with
    <root>/data.lock                      locked while a process reads or writes it
    <root>/observed/<name>/               the sessions into whose pipes changes of that queue are
                                          written, or with a "+" before it of that key or folder

A private directory (mode 0700, as are those made here) belongs to one user. One that an
administrator made writable for a group (mode 2770) is shared by its members.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import Final, Self

from coordlock.errors import ConfigurationError
from coordlock.model.names import file_name
from coordlock.runtime import shared_file

__all__ = ["UNKNOWN", "Directory", "default_root"]

#: The boot id where the system has none.
UNKNOWN: Final = "-" * 36

_TRUSTING: Final = "trust_filesystem=true"

#: How often to open a file again to which its maker may not have given its mode yet.
_MAX_ATTEMPTS: Final = 20


def default_root() -> str:
    """``$XDG_STATE_HOME/coordlock``, or ``~/.local/state/coordlock`` where that is not set.

    The home is that of the account, whatever ``HOME`` says, so that all of a user's processes
    exclude each other: under sudo, in a unit, or in a job that sets it.

    Raises `ConfigurationError` for a user without an account, or without a home.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the XDG specification: ignore relative ones
        state = os.path.join(_home(), ".local", "state")
    return os.path.join(state, "coordlock")


def _home() -> str:
    import pwd  # not on all systems on which this file is imported

    user = os.geteuid()
    try:
        home = pwd.getpwuid(user).pw_dir
    except KeyError:
        reason = f"user {user} has no account in the password database"
    else:
        if home != "/" and os.path.isabs(home) and os.path.isdir(home):
            return home
        reason = f"{home!r}, the home of user {user}'s account, is no directory of its own"
    raise ConfigurationError(
        f"no directory for local locks: {reason}: name a directory with local:///path, or set "
        "XDG_STATE_HOME"
    )


class Directory:
    """A state directory that was found fit, and the paths in it."""

    def __init__(
        self, root: str, mode: int = 0o700, *, folds: bool = False, boot: str | None = None
    ) -> None:
        """``mode`` is that of the directories in it.

        ``folds`` tells whether the file system takes ``a`` and ``A`` for the same name. ``boot``
        identifies a run of the operating system, by default the current one.
        """
        self.root: Final = root
        self.folds: Final = folds
        #: 36 characters; `UNKNOWN` where nothing identifies the run of the system.
        self.boot: Final = (_boot_id() if boot is None else boot).ljust(36, "-")[:36]
        #: Whether several users have access.
        self.shared: Final = bool(mode & 0o070)
        self.counter: Final = os.path.join(root, "counter")
        self.data: Final = os.path.join(root, "data")
        self.data_lock: Final = os.path.join(root, "data.lock")
        self.sessions: Final = os.path.join(root, "sessions")
        self.queues: Final = os.path.join(root, "queues")
        self.pipes: Final = os.path.join(root, "pipes")
        self.observed: Final = os.path.join(root, "observed")
        self.values: Final = os.path.join(root, "values")
        self._mode = mode

    @classmethod
    def prepare(cls, root: str, *, trusted: bool = False) -> Self:
        """The directory at ``root``, created where there is none.

        Unless the file system is ``trusted``, it must be known to be local. Raises
        `ConfigurationError` for one that can't be used, OSError where something fails.
        """
        _make_all(root)
        status = os.stat(root)
        if status.st_mode & stat.S_IWOTH:
            raise ConfigurationError(
                f"{root} is writable for everybody, so that anybody could break its locks: "
                "use a directory with mode 0700, or with mode 2770 and a group of its own"
            )
        shared = status.st_mode & stat.S_IWGRP
        if not shared and status.st_uid != os.geteuid():
            raise ConfigurationError(
                f"{root} belongs to user {status.st_uid} alone, this is user {os.geteuid()}: "
                "use another directory, or give it mode 2770 and a group of which both are members"
            )
        mode = stat.S_IMODE(status.st_mode) & 0o2770 if shared else 0o700
        if not trusted and (kind := shared_file.foreign(root)):
            raise ConfigurationError(
                f"{root} is on {kind}, and local locks cover one machine: "
                "choose a directory on a local disk, with local:///path or XDG_STATE_HOME; "
                "coordinate machines with zookeeper:// or etcd://; or, if no other machine uses "
                f"that file system, trust it with local://{root}?{_TRUSTING}"
            )
        for path in ("sessions", "pipes", "queues", "values", "observed"):
            _make(os.path.join(root, path), mode)
        return cls(root, mode, folds=os.path.exists(os.path.join(root, "SESSIONS")))

    def session(self, id: str) -> str:
        """The file of the session ``id``."""
        return f"{self.sessions}/{id}"

    def queue(self, name: str) -> str:
        """The file of the queue ``name``. No two names share one."""
        return f"{self.queues}/{file_name(name, folds=self.folds)}"

    def pipe(self, id: str) -> str:
        """The named pipe ``id``, that of a session or of its observers."""
        return f"{self.pipes}/{id}"

    def observers(self, name: str) -> str:
        """Where sessions subscribe to changes of what messages call ``name``."""
        return f"{self.observed}/{name}"

    def value(self, session: str, id: str) -> str:
        """The file with what the contender ``id`` of ``session`` publishes."""
        return f"{self.values}/{session}-{id}"

    def change(self, where: str) -> str:
        """What messages call a change at ``where``, a key or, with a slash, a folder."""
        return f"+{file_name(where, folds=self.folds)}"

    def make(self, path: str) -> None:
        """Make the directory ``path`` in it, if it is not there."""
        _make(path, self._mode)

    def make_pipe(self, path: str) -> None:
        """Make the named pipe ``path``, if it is not there."""
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
            _set_mode(path, self._mode & 0o660)

    def open(self, path: str, flags: int) -> int:
        """Open a file, with the ``flags`` of the system call; its descriptor.

        A file that is made here has the directory's mode, whatever the umask.
        """
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW
        if flags & os.O_EXCL:
            return self._made(path, flags)
        while True:
            try:
                return os.open(path, flags & ~os.O_CREAT)
            except FileNotFoundError:
                if not flags & os.O_CREAT:
                    raise
            except PermissionError:
                return _opened_later(path, flags & ~os.O_CREAT)
            with suppress(FileExistsError):  # another process makes it at this moment
                return self._made(path, flags)

    def _made(self, path: str, flags: int) -> int:
        descriptor = os.open(path, flags | os.O_EXCL, 0o600)
        try:
            _set_mode(descriptor, self._mode & 0o660)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _make_all(path: str) -> None:
    """Make the directory ``path`` and those above that are missing, for this user alone."""
    if not os.path.isdir(path):
        parent = os.path.dirname(path)
        if parent != path:
            _make_all(parent)
        _make(path, 0o700)


def _make(path: str, mode: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(path, mode)
        _set_mode(path, mode)


def _set_mode(made: str | int, mode: int) -> None:
    """Give ``mode`` to what was just made, whatever the umask was."""
    if stat.S_IMODE(os.stat(made).st_mode) != mode:
        with suppress(OSError):  # vfat and others have no modes; their mount options count
            os.chmod(made, mode)


def _opened_later(path: str, flags: int) -> int:
    """A descriptor of a file whose maker is about to give it its mode."""
    for _ in range(_MAX_ATTEMPTS):
        time.sleep(0.001)
        with suppress(PermissionError):
            return os.open(path, flags)
    return os.open(path, flags)


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""
