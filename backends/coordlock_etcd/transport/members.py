"""The members of the cluster, learned from the cluster.

Members are replaced while clients run. Once all that the URL names are gone, a client that knows
only those has nobody to ask. So now and then, and after it has left a member, the client asks for
the list. Hosts that it did not know come behind those of the URL.

A member says itself where clients reach it, and it may be wrong for this client: behind a proxy, in
another network, or with the default, ``localhost``. So by default the client follows the list only
where a member names a host as the URL does. And it uses no host before that has answered as a
member of this cluster: another cluster would grant locks that are held here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.transport.cluster import Cluster, Endpoint

__all__ = ["Members", "usable"]

log = Log("coordlock")

#: Seconds after which the client asks for the first time, and again. A program that ends before
#: that never asks.
_FIRST: Final = 5.0
_AGAIN: Final = 60.0


def usable(members: Iterable[Iterable[str]], known: Collection[str], *, tls: bool) -> list[str]:
    """One host and port for each member by which this client reaches it, of its client URLs.

    ``known`` are those of the client's own URL. A member's ``localhost`` is another machine where
    they name machines. With ``tls``, http is never used, and https is of no use without.
    """
    scheme = "https://" if tls else "http://"
    are_local = all(map(_is_local, known))
    found = []
    for urls in members:
        named = [_host(url) for url in urls if url.startswith(scheme)]
        hosts = [one for one in named if one and (one in known or are_local or not _is_local(one))]
        found += sorted(hosts, key=lambda host: host not in known)[:1]
    return list(dict.fromkeys(found))


class Members:
    """Learns them for one client.

    Args:
        wanted: whether to; None for where a member has a client URL with a host of the URL.
        ask: asks for the list: the endpoint that it is given, or the one in use.
    """

    def __init__(
        self,
        cluster: Cluster,
        wanted: bool | None,
        ask: Callable[[Endpoint | None], Promise[pb.MemberListResponse]],
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._ask = ask
        self._configured = frozenset(one.host.lower() for one in cluster.configured)
        self._tls = cluster.configured[0].is_secure
        self._due = SYSTEM_CLOCK.now() + _FIRST
        self._is_asking = False

    def moved(self) -> None:
        """Ask next time, because a member has failed."""
        self._due = 0.0

    def learn_when_due(self) -> None:
        """Ask for the members if that was long ago. Never blocks."""
        if self._wanted is False or self._is_asking or SYSTEM_CLOCK.now() < self._due:
            return
        self._is_asking = True
        run_in_background(self._learn()).add_done_callback(self._asked)

    def _learn(self) -> Steps[None]:
        reply: pb.MemberListResponse = yield self._ask(None)
        members = [member for member in reply.members if not member.isLearner]
        hosts = usable([one.clientURLs for one in members], self._configured, tls=self._tls)
        if self._wanted is None:
            self._wanted = not self._configured.isdisjoint(hosts)
        if not self._wanted or not hosts:
            return
        ids = {member.ID for member in members}
        known = {endpoint.host.lower(): endpoint for endpoint in self._cluster.endpoints}
        new = [self._cluster.like(host) for host in hosts if host not in known]
        for endpoint, answer in [(one, self._ask(one)) for one in new]:
            if (yield from _is_of(ids, answer)):
                known[endpoint.host] = endpoint
            else:
                log.debug("etcd: %s does not answer as the member that it should be", endpoint.host)
                endpoint.close_soon()
        found = [known[host] for host in hosts if host in known]
        if self._cluster.learn(found):
            log.info("etcd: the members are %s", ", ".join(one.host for one in found))

    def _asked(self, answer: Promise[None]) -> None:
        if not isinstance(answer.exception(), BackendUnavailable):
            self._due = SYSTEM_CLOCK.now() + _AGAIN
        self._is_asking = False


def _is_of(ids: Collection[int], answer: Promise[pb.MemberListResponse]) -> Steps[bool]:
    """Whether one of the members ``ids`` gives this ``answer``."""
    try:
        reply: pb.MemberListResponse = yield answer
    except CoordlockError:  # it can't be reached, or is no etcd; asked again next time
        return False
    return reply.header.member_id in ids


def _host(url: str) -> str:
    """The host and port of ``url``, as settings have them; empty where it has none."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname:
            name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            return f"{name}:{parts.port or 2379}"
    return ""


def _is_local(host: str) -> bool:
    """Whether ``host``, with its port, names whichever machine it is used on."""
    name = host.rpartition(":")[0].strip("[]").lower()
    if name == "localhost":
        return True
    with suppress(ValueError):
        address = ipaddress.ip_address(name)
        return address.is_loopback or address.is_unspecified
    return False
