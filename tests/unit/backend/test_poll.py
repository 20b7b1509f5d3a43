from __future__ import annotations

import socket

from coordlock.backend.poll import ready


def test_a_socket_that_another_thread_has_closed_counts_as_ended() -> None:
    one, other = socket.socketpair()
    with other:
        assert ready([one, other], timeout=0.0) == []
        assert ready([one], [one], timeout=0.0) == [one]
        one.close()
        assert ready([one, other], timeout=0.0) == [one]
