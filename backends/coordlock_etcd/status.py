"""The members of the cluster, and known bugs of their versions that bear on locks."""

from __future__ import annotations

from typing import Final

from coordlock.backend import ServiceInfo
from coordlock.backend.defects import Defect, Version, version_in, warnings_about
from coordlock.errors import CoordlockError
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import NotPermitted
from coordlock_etcd.rpc import STATUS
from coordlock_etcd.transport import Connection

__all__ = ["status", "warnings"]

#: The oldest release that this backend works with: the first with watch ids chosen by the client.
_OLDEST: Final[Version] = (3, 4, 0)

_DEFECTS: Final = (
    Defect(
        "leases may be revoked in spite of good keep-alives when a paused leader resumes (etcd "
        "issues 12528, 15247)",
        (((3, 4, 0), (3, 4, 31)), ((3, 5, 0), (3, 5, 13))),
    ),
    Defect(
        "keep-alives of a revoked lease may be answered as if it lived",
        (((3, 4, 0), (3, 4, 38)), ((3, 5, 0), (3, 5, 23)), ((3, 6, 0), (3, 6, 5))),
    ),
    Defect(
        "linearizable reads may be stale after a pause (etcd issue 20418)",
        (((3, 4, 0), (3, 4, 42)), ((3, 5, 0), (3, 5, 28)), ((3, 6, 0), (3, 6, 9))),
    ),
)


def status(connection: Connection) -> Promise[ServiceInfo]:
    """Ask all endpoints for their status. One answer is enough; fails when none comes."""
    asked = [
        (one.host, connection.to(one).call(STATUS, pb.StatusRequest(), lambda reply: reply))
        for one in connection.cluster.endpoints
    ]

    def steps() -> Steps[ServiceInfo]:
        endpoints: list[str] = []
        versions: set[str] = set()
        notes: list[str] = []
        for host, answer in asked:
            try:
                reply: pb.StatusResponse = yield answer
            except NotPermitted:
                endpoints.append(host)
            except CoordlockError as error:
                endpoints.append(f"{host} (no answer)")
                notes.append(str(error))
            else:
                leads = reply.leader == reply.header.member_id
                endpoints.append(f"{host} ({'leader' if leads else 'follower'})")
                versions.add(reply.version)
        if len(notes) == len(asked):
            yield asked[0][1]  # which fails
        if not versions:
            notes.append("the version is not known: etcd tells it to users with the role root only")
        return ServiceInfo(
            service="etcd",
            version=", ".join(sorted(versions)) or "unknown",
            endpoints=tuple(endpoints),
            warnings=(*notes, *(text for one in sorted(versions) for text in warnings(one))),
        )

    return run_in_background(steps())


def warnings(version: str) -> tuple[str, ...]:
    """What to know about a server of ``version``, such as ``3.4.23``; empty when nothing."""
    release = version_in(version)
    if release is not None and release < _OLDEST:
        return (f"etcd {version} is too old: coordlock needs 3.4 or later",)
    return warnings_about("etcd", version, _DEFECTS)
