"""Ports for test servers."""

from __future__ import annotations

import os
import random
import socket

__all__ = ["free_port"]

# Below the range from which kernels take the ports of outgoing connections. In that range, a client
# that keeps dialling a stopped server can be given the server's own port and connect to itself;
# the server could then never come back.
_FIRST, _LAST = 15_000, 31_999
# What a server will bind, or binds again after a restart, no other process may be given meanwhile.
# So each of pytest's workers has a share of its own, by its number: gw0, gw1 and so on.
# With more of them than shares, some share one.
_SHARES = 8
_given: set[int] = set()
_random = random.SystemRandom()


def free_port() -> int:
    """A port of 127.0.0.1 that is free now and was not given before in this process."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = range(_FIRST + worker % _SHARES, _LAST + 1, _SHARES)
    for _ in range(1000):
        port = _random.choice(share)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise OSError(f"no free port from {_FIRST} to {_LAST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
