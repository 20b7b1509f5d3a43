"""Who is told of a departure, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from coordlock_zookeeper.requests import Requests
from coordlock_zookeeper.watches import Watches


class Client:
    """Connected, and asked for nodes; nothing is answered."""

    connected = True
    chroot = ""
    last_zxid = 0
    handler = SimpleNamespace(dispatch_callback=lambda callback: callback.func(*callback.args))

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.interrupts: list[BaseException] = []

    def _call(self, request: Any, _: object) -> None:
        if self.interrupts:
            raise self.interrupts.pop()
        self.asked.append(request.path)


def test_an_interrupted_request_keeps_nobody_from_being_told() -> None:
    client = Client()
    watches = Watches(Requests(client))
    client.interrupts.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        watches.add("/q/first", lambda _: None)
    watches.add("/q/first", lambda _: None)
    assert client.asked == ["/q/first"]


def test_who_shares_an_interrupted_request_is_asked_for_by_the_next_heartbeat() -> None:
    client = Client()
    watches = Watches(Requests(client))
    client.connected = False
    watches.add("/q/first", lambda _: None)
    client.connected = True
    client.interrupts.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        watches.add("/q/first", lambda _: None)
    watches.rearm(missing=True)
    assert client.asked == ["/q/first"]
