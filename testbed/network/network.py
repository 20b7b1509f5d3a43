"""All links of a system under the nemesis: among its nodes, and from clients to nodes.

Every port of a node has a relay in front of it, and everybody dials the relays. A connection is its
dialler's: who has its other end open is asked of the kernel when it is accepted. So each direction
between two parties can be disturbed by itself, whoever dialled, and disturbances take effect at
once on the connections that are there as on those to come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

from coordlock.testing.connection import Connection, Faults
from coordlock.testing.frames import Framer, RawFrames
from coordlock.testing.loop import Loop
from coordlock.testing.relay import Relay
from testbed.network.diallers import owns, socket_number
from testbed.network.disturbance import Disturbance, Pair, Wire

__all__ = ["Network"]


class Network:
    """Relays on free ports of 127.0.0.1, all served by one thread; a context manager.

    All methods may be called from any thread, and have taken effect when they return. Those that
    return a disturbance undo nothing themselves: `end` or `heal` does.
    """

    def __init__(self) -> None:
        self._loop = Loop()
        self._relays: list[Relay] = []
        self._pids: dict[str, int] = {}
        self._wires: dict[Pair, Wire] = {}
        self._disturbances: list[Disturbance] = []

    def link(
        self,
        target: str,
        port: int,
        framer: Callable[[], Framer] = RawFrames,
        patience: float = 0.0,
    ) -> int:
        """The port at which others reach the ``port`` of ``target``.

        See `Relay` for ``patience``, in seconds.
        """

        def met(connection: Connection) -> None:
            self._connect(connection, None, target)
            self._recognise(connection)

        relay = Relay("127.0.0.1", port, framer, self._loop, met, patience)
        self._relays.append(relay)
        return relay.port

    def know(self, name: str, pid: int) -> None:
        """What the process dials, or has dialled and still has, is dialled by ``name``."""

        def know() -> None:
            self._pids[name] = pid
            for connection in self._loop.connections:
                if _diallers_wire(connection).source is None:
                    self._recognise(connection)

        self._loop.run(know)

    def forget(self, name: str) -> None:
        """The process of ``name`` is gone; its number may become another's. Idempotent."""
        self._loop.run(lambda: self._pids.pop(name, None))

    def silence(self, source: str | None, target: str | None) -> Disturbance:
        """Black-hole what ``source`` sends to ``target``, one way; None is everybody.

        It is delivered when that ends, as TCP would, or lost with its connection.
        """
        return self._disturb(Disturbance(((source, target),), silent=True))

    def isolate(self, name: str) -> Disturbance:
        """Black-hole what ``name`` sends and what it is sent."""
        return self._disturb(Disturbance(_both_ways(name), silent=True))

    def slow(self, name: str, seconds: float) -> Disturbance:
        """Delay what ``name`` sends and what it is sent, each by so much."""
        return self._disturb(Disturbance(_both_ways(name), delay=seconds))

    def reset(self, name: str) -> None:
        """Reset all connections that ``name`` has."""

        def reset() -> None:
            for connection in self._loop.connections:
                wire = _diallers_wire(connection)
                if name in (wire.source, wire.target):
                    connection.reset()

        self._loop.run(reset)

    def end(self, disturbance: Disturbance) -> None:
        """It is over; others remain. Idempotent."""

        def end() -> None:
            if disturbance in self._disturbances:
                self._disturbances.remove(disturbance)
                self._obey()

        self._loop.run(end)

    def heal(self) -> None:
        """All disturbances are over. What was held back or delayed is delivered at once."""

        def heal() -> None:
            self._disturbances.clear()
            self._obey()
            for connection in self._loop.connections:
                connection.release()

        self._loop.run(heal)

    def disturbances(self) -> list[Disturbance]:
        """Those that are not over."""
        return self._loop.run(self._disturbances.copy)

    def connections(self) -> list[Pair]:
        """Of every connection that is there, who dialled and whom."""

        def look() -> list[Pair]:
            wires = [_diallers_wire(one) for one in self._loop.connections if not one.is_closed]
            return [(wire.source, wire.target) for wire in wires]

        return self._loop.run(look)

    def _disturb(self, disturbance: Disturbance) -> Disturbance:
        def disturb() -> None:
            self._disturbances.append(disturbance)
            self._obey()

        self._loop.run(disturb)
        return disturbance

    def _obey(self) -> None:
        for wire in self._wires.values():
            wire.obey(self._disturbances)

    def _recognise(self, connection: Connection) -> None:
        try:
            port, dialled = connection.client.getpeername()[1], connection.client.getsockname()[1]
        except OSError:  # it is closed
            return
        number = socket_number(port, dialled)
        if number is not None:
            for name, pid in self._pids.items():
                if owns(pid, number):
                    self._connect(connection, name, _diallers_wire(connection).target)
                    return

    def _connect(self, connection: Connection, source: str | None, target: str | None) -> None:
        connection.requests.faults = self._wire(source, target)
        connection.replies.faults = self._wire(target, source)

    def _wire(self, source: str | None, target: str | None) -> Wire:
        wire = self._wires.get((source, target))
        if wire is None:
            wire = self._wires[source, target] = Wire(source, target)
            wire.obey(self._disturbances)
        return wire

    def start(self) -> Self:
        """Start serving; ``with`` does it."""
        self._loop.start()
        return self

    def stop(self) -> None:
        """Reset all connections and free the ports. Idempotent.

        Raises OSError when the kernel did not say who had dialled.
        """
        self._loop.stop()
        for relay in self._relays:
            relay.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _both_ways(name: str) -> tuple[Pair, ...]:
    return (name, None), (None, name)


def _diallers_wire(connection: Connection) -> Wire:
    """What the dialler of ``connection`` sends on: it tells who dialled whom."""
    faults: Final[Faults] = connection.requests.faults
    assert isinstance(faults, Wire)
    return faults
