"""Data that needs no lock: readings behind a `sync`, and multis.

A server may lag behind others. So each reading is sent behind a `sync`, which the leader answers
and by which the server catches up with it. (A leader that was replaced without knowing it yet,
because it was stopped for a while, answers it as well: until it finds out, its clients may read the
past.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kazoo.protocol.serialization import GetData, Sync
from kazoo.security import OPEN_ACL_UNSAFE

from coordlock.backend import Listing, Observation, Operation
from coordlock.errors import AuthenticationFailed
from coordlock.model.contender import Contender
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.answers import ask, full
from coordlock_zookeeper.line import Line
from coordlock_zookeeper.observing import Observations
from coordlock_zookeeper.places import FolderPlace, KeyPlace
from coordlock_zookeeper.session import ZookeeperSession
from coordlock_zookeeper.transactions import GuardedData, explained, stored

__all__ = ["PlainData"]


class PlainData:
    """What a backend adds for `coordlock.backend.Data`.

    ``acl`` is of the nodes made; None: the client's default.
    """

    def __init__(self, line: Line, observations: Observations, acl: Sequence[Any] | None) -> None:
        self._line = line
        self._observations = observations
        self._acl = acl

    def read(self, where: str) -> Promise[Listing]:
        """See `Data.read`. A folder is read as it is followed, but once."""
        if where.endswith("/"):
            return self._observations.read(FolderPlace(where))
        return self._line.submit(lambda session: _read(session.client, where))

    def write(self, operations: Sequence[Operation], guards: Sequence[Contender]) -> Promise[int]:
        """See `Data.write`."""

        def commit(session: ZookeeperSession) -> Steps[int]:
            acl = self._acl or session.client.default_acl or OPEN_ACL_UNSAFE
            return GuardedData(session, acl).commit(guards, operations)

        return self._line.submit(commit)

    def follow(self, where: str, news: Callable[[], None]) -> Observation[Listing]:
        """See `Data.follow`."""
        place = FolderPlace(where) if where.endswith("/") else KeyPlace(where)
        return self._observations.observe(place, news)


def _read(client: Any, key: str) -> Steps[Listing]:
    synced = ask(client, Sync(full(client, "/")))
    asked = ask(client, GetData(full(client, key), None))
    yield synced
    try:
        found, zxid = yield asked
    except AuthenticationFailed as error:
        raise explained(key, error) from None
    value = None if found is None else stored(*found)
    return Listing({} if value is None else {key: value}, zxid)
