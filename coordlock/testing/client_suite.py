"""What the suites that use clients have in common: how they connect, sync and async."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Final, TypeVar

import pytest

import coordlock
from coordlock.backend import Backend, Capability
from coordlock.errors import WaitUnavailable
from coordlock.testing.portal import Portal

__all__ = ["DRIVERS", "ClientSuite", "error_of"]

E = TypeVar("E", bound=Exception)

#: No answer takes longer on a healthy service, however loaded the machine is.
BOUND: Final = 60.0
DRIVERS: Final = ("sync", "async")
#: Starts a call in a thread; its outcome is a future.
Start = Callable[..., Future[Any]]


def error_of(call: Callable[[], object], kind: type[E], match: str = "") -> E:
    """The error of a ``call`` with a short timeout: of this ``kind``, with ``match`` in its text.

    If the machine stalls, the call ends as in an outage or knows less, and is repeated.
    """
    until = time.monotonic() + BOUND
    while True:
        with pytest.raises((kind, WaitUnavailable)) as caught:
            call()
        error = caught.value
        if isinstance(error, kind) and re.search(match, str(error)):
            return error
        if time.monotonic() > until:
            raise error


class ClientSuite:
    """Fixtures. Every test that takes a client runs with a sync and with an async one."""

    backend: ClassVar[type[Backend]]
    #: The suite is for backends that declare these.
    needs: ClassVar[tuple[Capability, ...]] = ("ordered",)

    @pytest.fixture(params=DRIVERS)
    def connect(self, request: pytest.FixtureRequest, url: str) -> Iterator[Callable[..., Any]]:
        """Connects a client to the test's service; all are closed after the test."""
        clients: list[Any] = []
        portal = Portal() if request.param == "async" else None

        def connect(**options: Any) -> Any:
            client = (portal or coordlock).connect(url, **options)
            clients.append(client)
            return client

        yield connect
        for client in clients:
            client.close()
        if portal:
            portal.close()

    @pytest.fixture
    def client(self, connect: Callable[..., Any]) -> Any:
        """A client."""
        return connect()

    @pytest.fixture
    def other(self, connect: Callable[..., Any]) -> Any:
        """Another one, with a session of its own."""
        return connect()

    @pytest.fixture
    def start(self) -> Iterator[Start]:
        """Starts a call in a thread; its outcome is a future."""
        with ThreadPoolExecutor(32) as pool:
            yield pool.submit
