"""What this process has open."""

from __future__ import annotations

import contextlib
import os

__all__ = ["open_descriptors"]


def open_descriptors() -> list[str]:
    """A path or a kind for each descriptor."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    # kazoo makes a descriptor for each time that it waits.
    return [kind for kind in found if kind != "anon_inode:[eventpoll]"]
