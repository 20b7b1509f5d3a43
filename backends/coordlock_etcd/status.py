"""The members of the cluster: all are asked, and one answer is enough."""

from __future__ import annotations

from coordlock.backend import ServiceInfo
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import NotPermitted
from coordlock_etcd.rpc import STATUS
from coordlock_etcd.transport import Connection
from coordlock_etcd.versions import warnings

__all__ = ["status"]

#: By host.
_Answers = list[tuple[str, Promise[pb.StatusResponse]]]


def status(connection: Connection) -> Promise[ServiceInfo]:
    """Ask all endpoints for their status; fails when none answers."""
    answers: _Answers = [
        (endpoint.host, connection.call(STATUS, pb.StatusRequest(), _whole, at=endpoint))
        for endpoint in connection.cluster.endpoints
    ]
    promise: Promise[ServiceInfo] = Promise()

    def done(_: Promise[pb.StatusResponse]) -> None:
        # The last answers may come at the same time; the promise takes the first result.
        if all(answer.done() for _, answer in answers):
            try:
                promise.resolve(_describe(answers))
            except Exception as error:
                promise.fail(error)

    for _, answer in answers:
        answer.add_done_callback(done)
    return promise


def _whole(reply: pb.StatusResponse) -> pb.StatusResponse:
    return reply


def _describe(answers: _Answers) -> ServiceInfo:
    errors = [answer.exception() for _, answer in answers]
    if not any(error is None or isinstance(error, NotPermitted) for error in errors):
        answers[0][1].result()
    endpoints: list[str] = []
    versions: set[str] = set()
    notes: list[str] = []
    for host, answer in answers:
        error = answer.exception()
        if isinstance(error, NotPermitted):
            endpoints.append(host)
            continue
        if error is not None:
            endpoints.append(f"{host} (no answer)")
            notes.append(str(error))
            continue
        reply = answer.result()
        leads = reply.leader == reply.header.member_id
        endpoints.append(f"{host} ({'leader' if leads else 'follower'})")
        versions.add(reply.version)
        if not reply.leader:
            notes.append(f"{host} knows no leader: its cluster has no majority")
    known = sorted(versions)
    if not known:
        notes.append("the version is not known: etcd tells it to users with the role root only")
    return ServiceInfo(
        service="etcd",
        version=", ".join(known) or "unknown",
        endpoints=tuple(endpoints),
        warnings=tuple(notes) + tuple(text for one in known for text in warnings(one)),
    )
