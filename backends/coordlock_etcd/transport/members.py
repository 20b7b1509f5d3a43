"""The members of the cluster, learned from the cluster where the option ``learn_members`` says so.

Members are replaced while clients run. Once all that the URL names are gone, a client that knows
only those has nobody to ask. So the client asks for the list about once a minute, with a heartbeat,
and uses the hosts of the members' client URLs behind those of its own URL.

It uses no host before that has answered as a member of this cluster: another cluster would grant
locks that are held here. So a URL that is of no use to this client does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from coordlock.errors import CoordlockError
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.transport.cluster import Cluster, Endpoint

__all__ = ["Members"]

log = Log("coordlock")

#: Seconds from one question for the members to the next.
INTERVAL_S: Final = 60.0


class Members:
    """Learns them for one client.

    Args:
        ask: asks for the list: the endpoint that it is given, or the one in use.
    """

    def __init__(
        self,
        cluster: Cluster,
        ask: Callable[[Endpoint | None], Promise[pb.MemberListResponse]],
    ) -> None:
        self._cluster = cluster
        self._ask = ask
        self._due = 0.0

    def learn_when_due(self) -> None:
        """Ask for the members if that was long ago. Never blocks."""
        now = SYSTEM_CLOCK.now()
        if now >= self._due:
            self._due = now + INTERVAL_S
            run_in_background(self._learn())

    def _learn(self) -> Steps[None]:
        try:
            reply: pb.MemberListResponse = yield self._ask(None)
        except CoordlockError:
            return  # asked again with a later heartbeat
        members = [member for member in reply.members if not member.isLearner]
        ids = {member.ID for member in members}
        known = {endpoint.host.lower(): endpoint for endpoint in self._cluster.endpoints}
        found = []
        hosts = dict.fromkeys(_host(url) for one in members for url in one.clientURLs)
        hosts.pop("", None)
        for host in hosts:
            if (endpoint := known.get(host)) is None:
                endpoint = self._cluster.like(host)
                try:
                    answer: pb.MemberListResponse = yield self._ask(endpoint)
                    is_member = answer.header.member_id in ids
                except CoordlockError:
                    is_member = False
                if not is_member:
                    log.debug("etcd: %s does not answer as a member of this cluster", host)
                    endpoint.close_soon()
                    continue
            found.append(endpoint)
        if found and self._cluster.learn(found):
            log.info("etcd: the members are %s", ", ".join(one.host for one in found))


def _host(url: str) -> str:
    """The host and port of ``url``, as settings have them; empty where it has none."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname:
            name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            return f"{name}:{parts.port or 2379}"
    return ""
