"""Readings of watched keys, where no watch is certain to report what has happened."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from coordlock.errors import BackendUnavailable
from coordlock.runtime.clock import Clock
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE
from coordlock_etcd.rpc import TXN
from coordlock_etcd.transport import Connection
from coordlock_etcd.watches import Watch

__all__ = ["Rechecked", "Rechecks"]

#: Seconds after which the watched keys are read, even if the stream is well.
_INTERVAL: Final = 60.0


class Rechecked(Protocol):
    """Whose watches are read. Called from gRPC's threads."""

    def watched(self) -> list[Watch]:
        """All watches."""

    def went(self, watch: Watch) -> None:
        """What ``watch`` waits for has happened."""

    def stays(self, watch: Watch, revision: int) -> None:
        """It had not happened at ``revision``."""

    def not_read(self, watches: Sequence[Watch]) -> None:
        """The keys of ``watches`` could not be read."""


class Rechecks:
    """Reads the keys of watches. Never blocks."""

    def __init__(self, connection: Connection, clock: Clock, rechecked: Rechecked) -> None:
        self._connection = connection
        self._clock = clock
        self._rechecked = rechecked
        self._read = clock.now()

    @property
    def are_due(self) -> bool:
        """Whether the last reading of all keys was long ago."""
        return self._clock.now() - self._read >= _INTERVAL

    def read_all(self) -> None:
        """Read the keys of all watches."""
        self._read = self._clock.now()
        self.read(self._rechecked.watched())

    def read(self, watches: Sequence[Watch]) -> None:
        """Read the keys of ``watches``."""
        for start in range(0, len(watches), requests.MAX_OPERATIONS):
            batch = watches[start : start + requests.MAX_OPERATIONS]
            request = requests.presence([watch.key for watch in batch])
            seen = self._connection.cluster.revision
            answer = self._connection.call(TXN, request, partial(self._take, batch, seen))
            answer.add_done_callback(partial(self._answered, batch))

    def _take(self, batch: Sequence[Watch], seen: int, reply: pb.TxnResponse) -> None:
        revision = reply.header.revision
        if revision < seen:  # see `data`
            raise BackendUnavailable(SERVICE, "the answer is older than what was seen before")
        for watch, operation in zip(batch, reply.responses, strict=True):
            if watch.still_waits(operation.response_range.kvs):
                self._rechecked.stays(watch, revision)
            else:
                self._rechecked.went(watch)

    def _answered(self, batch: Sequence[Watch], answer: Promise[None]) -> None:
        if answer.exception() is not None:
            self._rechecked.not_read(batch)
