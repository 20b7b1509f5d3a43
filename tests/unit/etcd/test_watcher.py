"""What the watcher makes of its stream and of its readings."""

from __future__ import annotations

import math
from unittest.mock import Mock

from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.watcher import Watcher

from coordlock.errors import BackendUnavailable
from coordlock.model.claim import Mode
from coordlock.model.contender import Contender
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.promise import Promise, resolved


def test_while_the_stream_is_broken_a_reading_that_is_answered_does_not_end_the_doubt() -> None:
    """The fault: once a minute the session was in doubt anew, which was logged again."""
    present = pb.RangeResponse(kvs=[pb.KeyValue(key=b"/r/q/lock-1", create_revision=5)])
    reply = pb.TxnResponse(
        header=pb.ResponseHeader(revision=9), responses=[pb.ResponseOp(response_range=present)]
    )

    def call(_: object, request: object, read: object, **__: object) -> Promise[None]:
        return resolved(read(reply))  # type: ignore[operator]

    connection, session = Mock(), Mock()
    connection.call.side_effect = call
    watcher = Watcher(connection, SYSTEM_CLOCK, session)
    watcher.host.start = Mock()  # type: ignore[method-assign]
    contender = Contender(
        id="1", key="/r/q/lock-1", claim=Mode.EX, order=5, token=5, session="1", owner=None
    )
    watcher.watch(contender, 5, lambda _: None)
    watcher.broke(BackendUnavailable("etcd", "no stream"))
    watcher._rechecked_at = -math.inf
    watcher.recheck_when_due()
    assert connection.call.call_count == 1
    session.recovered.assert_not_called()
    watcher.broke(BackendUnavailable("etcd", "no stream"))
    session.suspect.assert_called_once()
