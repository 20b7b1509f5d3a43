"""Starting servers that need each other's addresses before any of them can answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

from testbed.servers.process import PortTaken, ServerProcess

__all__ = ["start_together"]


def start_together(members: Sequence[ServerProcess], configure: Callable[[], None]) -> None:
    """Start ``members`` and wait until all answer; ``configure`` tells them of each other's ports.

    When a port was taken meanwhile, all start over with other ports and without data, because the
    addresses of a cluster are part of its data.
    """
    for _ in range(5):
        configure()
        try:
            for member in members:
                member.spawn()
            for member in members:
                member.wait_until_answers()
            return
        except BaseException as error:
            for member in members:
                member.kill()
            if not isinstance(error, PortTaken):
                raise
        for member in members:
            shutil.rmtree(member.data, ignore_errors=True)
            member.choose_ports()
    raise PortTaken("five times other ports, and each time one was taken")
