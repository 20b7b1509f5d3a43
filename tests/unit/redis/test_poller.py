"""The thread for I/O waits for several connections at once."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace
from typing import Any

from coordlock_redis.poller import Poller
from coordlock_redis.servers import Link


def test_a_connection_that_the_child_of_a_fork_keeps_open_is_not_heard_of_any_more() -> None:
    ours, theirs = socket.socketpair()
    parser = SimpleNamespace(parse_error=ValueError)
    connection: Any = SimpleNamespace(_sock=ours, _parser=parser, disconnect=ours.close)
    link = Link(connection, "here", b"run", (7, 0), False, 0, False)
    poller, heard = Poller(), []
    poller.add(link, lambda: heard.append(True))
    kept = os.dup(ours.fileno())
    theirs.send(b"x")
    poller.wait(5.0)
    assert heard == [True]
    link.close()
    theirs.close()
    poller.wait(0.0)
    assert heard == [True]
    os.close(kept)
    poller.close()
