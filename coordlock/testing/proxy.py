"""A TCP proxy that does to a connection what networks do, at the moment a test chooses.

::

    with FaultProxy("127.0.0.1", server_port, ZooKeeperFrames) as proxy:
        client = connect(f"zookeeper://127.0.0.1:{proxy.port}")

        proxy.delay(0.05)                     # 50 ms each way
        proxy.replies.black_hole()            # requests arrive, answers do not
        proxy.refuse()                        # no new connections
        proxy.drop_connections()              # reset those that are open
        proxy.heal()                          # all is well again

        proxy.on_request("create2", Connection.lose_reply)
        with proxy.counting() as sent:
            client.lock("x").acquire()        # its first create succeeds, and looks as if it failed
        assert sent.requests["create2"] == 1

What a black hole holds back is delivered at `heal`, as a network would deliver what was sent
again; reset the connections first to lose it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final, Self

from coordlock.testing.connection import Faults
from coordlock.testing.counts import Counts
from coordlock.testing.frames import Framer, RawFrames
from coordlock.testing.loop import Loop
from coordlock.testing.relay import Relay
from coordlock.testing.trap import Action, BytesTrap, MessageTrap, Trap

__all__ = ["Direction", "FaultProxy"]


class Direction:
    """Faults of one direction of every connection, those to come included.

    ``proxy.requests`` is from client to server, ``proxy.replies`` from server to client.
    """

    def __init__(self, relay: Relay, faults: Faults) -> None:
        self._relay = relay
        self._faults = faults

    def black_hole(self) -> None:
        """Hold back everything, ends of connections too, until `FaultProxy.heal`.

        New connections are accepted, and nothing comes of them.
        """
        self._set("is_held", True)

    def delay(self, seconds: float) -> None:
        """Deliver everything so much later, in order. Latency only: throughput is not limited."""
        self._set("delay", seconds)

    def cut_after(self, size: int) -> None:
        """Forward so many more bytes, then close the connection that carries the next one."""
        self._set("allowance", size)

    def _set(self, fault: str, value: float) -> None:
        self._relay.run(lambda: setattr(self._faults, fault, value))


class FaultProxy:
    """A proxy on a free port of 127.0.0.1 to one server; a context manager.

    One thread serves all connections. All methods may be called from any thread, and have taken
    effect when they return.

    Args:
        host, port: the server's.
        framer: the protocol to count and to wait for: `ZooKeeperFrames`, `GrpcFrames`, or a
            class of your own. Left out where bytes suffice, and with TLS.
    """

    host: Final = "127.0.0.1"

    def __init__(self, host: str, port: int, framer: Callable[[], Framer] = RawFrames) -> None:
        self._loop = Loop()
        self._relay = relay = Relay(host, port, framer, self._loop)
        self.requests = Direction(relay, relay.requests)
        self.replies = Direction(relay, relay.replies)

    @property
    def port(self) -> int:
        """The port that clients connect to; it stays the same for the proxy's life."""
        return self._relay.port

    def black_hole(self) -> None:
        """Hold back everything in both directions: a partition of which neither side is told."""
        self.requests.black_hole()
        self.replies.black_hole()

    def delay(self, seconds: float) -> None:
        """Delay both directions: a round trip takes twice as much longer."""
        self.requests.delay(seconds)
        self.replies.delay(seconds)

    def refuse(self) -> None:
        """Refuse new connections; open ones stay."""
        self._relay.run(self._relay.refuse)

    def drop_connections(self) -> None:
        """Reset all connections. New ones are accepted."""

        def drop() -> None:
            for connection in self._relay.connections:
                connection.reset()

        self._relay.run(drop)

    def heal(self) -> None:
        """Lift all faults and traps. What was held back or delayed is delivered at once."""
        relay = self._relay

        def heal() -> None:
            relay.requests.heal()
            relay.replies.heal()
            relay.traps.clear()
            for connection in relay.connections:
                connection.release()
            relay.listen()

        self._relay.run(heal)

    def on_request(
        self, kind: str, action: Action, *, containing: bytes = b"", nth: int = 1
    ) -> Trap:
        """Do ``action`` once, when the ``nth`` fitting request comes, before it is forwarded.

        ``kind`` may be a pattern: ``create*``. Actions are `Connection.lose_reply`,
        ``omit_reply``, ``lose_request``, ``reset``, ``close``, ``black_hole``, or your own
        function of a `Connection` and a `Message`. Needs a framer.
        """
        return self._set_trap(MessageTrap(kind, containing, action, nth))

    def on_bytes(self, pattern: bytes, action: Action, *, nth: int = 1) -> Trap:
        """Do ``action`` once, when a client has sent ``pattern``; needs no framer.

        What came before the frame in which the pattern ends may be forwarded already.
        """
        return self._set_trap(BytesTrap(pattern, action, nth))

    def _set_trap(self, trap: Trap) -> Trap:
        self._relay.run(lambda: self._relay.traps.append(trap))
        return trap

    def counts(self) -> Counts:
        """What has passed since the proxy started."""
        return self._relay.run(self._relay.counts.copy)

    @contextlib.contextmanager
    def counting(self) -> Iterator[Counts]:
        """Counts that are filled in when the block ends, with what passed within it."""
        before, within = self.counts(), Counts()
        yield within
        within.__dict__.update((self.counts() - before).__dict__)

    def start(self) -> Self:
        """Start serving; ``with`` does it."""
        self._loop.start()
        return self

    def stop(self) -> None:
        """Reset all connections and free the port. Idempotent.

        Raises what a framer raised: counts and traps cannot be relied on then.
        """
        self._loop.stop()
        self._relay.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
