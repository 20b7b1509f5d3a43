"""The version of a state directory's layout: every release checks it, a newer one changes it.

Layout 1 had a directory for each queue, and did not say so. Where there is a directory of that name
no file can be, nor the other way round. So releases of both, if they meet, refuse each other's
queues, and no lock is granted twice.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from coordlock.errors import BackendError, ConfigurationError
from coordlock_local.counter import Counter, Tokens
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE
from coordlock_local.flock import holder
from coordlock_local.session import is_alive

__all__ = ["LAYOUT", "adopt", "check"]

LAYOUT: Final = 2
_LINE: Final = "coordlock's local locks, layout "


def check(directory: Directory) -> bool:
    """Whether it says that it has this layout; raises `ConfigurationError` for another one."""
    try:
        with open(directory.layout, encoding="utf-8", errors="replace") as file:
            line = file.read().strip()
    except FileNotFoundError:
        return False
    if line == f"{_LINE}{LAYOUT}":
        return True
    raise ConfigurationError(
        f"{directory.layout} says {line[:80]!r}, and this release of coordlock knows layout "
        f"{LAYOUT} alone: upgrade coordlock, or use another directory, with local:///path or "
        "XDG_STATE_HOME"
    )


def adopt(directory: Directory, counter: Counter) -> None:
    """See to it that it has this layout, and says so.

    Raises `BackendError` while processes of an older release use it, and `Busy`.
    """
    if not check(directory):
        counter.hold(partial(_take_over, directory))


def _take_over(directory: Directory, _: Tokens) -> None:
    if check(directory):
        return
    for id in os.listdir(directory.sessions):
        if is_alive(directory, id):
            raise BackendError(
                SERVICE,
                f"an older release of coordlock (process {holder(directory.session(id))}) "
                f"uses {directory.root}: end or upgrade it, or use another directory",
            )
        os.unlink(directory.session(id))
    for entry in os.scandir(directory.queues):
        if entry.is_dir(follow_symlinks=False):
            import shutil  # seldom needed, and not cheap to import

            shutil.rmtree(entry.path)
    draft = f"{directory.layout}.new"
    descriptor = directory.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(descriptor, f"{_LINE}{LAYOUT}\n".encode("ascii"))
        os.fsync(descriptor)  # after a power failure it is there whole, or not at all
    finally:
        os.close(descriptor)
    os.rename(draft, directory.layout)
