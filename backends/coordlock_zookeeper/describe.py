"""Asks servers for their version, by the four-letter word that needs no session, and knows bugs."""

from __future__ import annotations

from typing import Final

from coordlock.backend import ServiceInfo
from coordlock.backend.defects import Defect, version_in, warnings_about
from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise, in_thread
from coordlock_zookeeper.errors import SERVICE, translate
from coordlock_zookeeper.session import SessionClient

__all__ = ["describe", "warnings_for"]

_LONGEST_ANSWER: Final = 65_536


def describe(session_client: SessionClient, timeout: float) -> Promise[ServiceInfo]:
    """What the servers say within ``timeout`` seconds each; `BackendUnavailable` if none does."""

    def ask() -> ServiceInfo:
        try:
            return _ask_all(session_client, timeout)
        except Exception as error:
            raise translate(error) from error

    return in_thread("coordlock-zookeeper-describe", ask)


def _ask_all(session_client: SessionClient, timeout: float) -> ServiceInfo:
    answers: list[str] = []
    silent: list[str] = []
    for host, port in session_client.client.hosts:
        try:
            answers.append(_srvr(session_client, host, port, timeout))
        except OSError as error:
            silent.append(f"{host}:{port} does not answer: {error.strerror or error}")
    if not answers:
        raise BackendUnavailable(SERVICE, "; ".join(silent))
    known = filter(None, map(version_in, answers))
    versions = sorted({".".join(map(str, version)) for version in known})
    warnings = silent + [text for version in versions for text in warnings_for(version)]
    if not versions:
        warnings.append("the version is not known: 'srvr' is not in 4lw.commands.whitelist")
    return ServiceInfo(
        service="ZooKeeper",
        version=", ".join(versions) or "unknown",
        endpoints=tuple(f"{host}:{port}" for host, port in session_client.client.hosts),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _srvr(session_client: SessionClient, host: str, port: int, timeout: float) -> str:
    with session_client.dial(host, port, timeout) as server:
        server.sendall(b"srvr")
        return server.makefile("rb").read(_LONGEST_ANSWER).decode("utf-8", "replace")


_DEFECTS: Final = (
    Defect(
        "changes, contenders among them, may be lost when leaders change (ZOOKEEPER-4785)",
        (((3, 8, 0), (3, 8, 4)), ((3, 9, 0), (3, 9, 2))),
    ),
    Defect(
        "changes, contenders among them, may be lost when leaders change (ZOOKEEPER-4925)",
        (((3, 9, 3), (3, 9, 4)),),
    ),
    Defect(
        "a follower that shuts down may diverge from its ensemble (ZOOKEEPER-4712)",
        (((3, 9, 0), (3, 9, 3)),),
    ),
    Defect(
        "SASL DIGEST-MD5 may let in users that do not exist (ZOOKEEPER-4839)",
        (((3, 9, 0), (3, 9, 3)),),
    ),
    Defect(
        "it has no container nodes, which coordlock needs: upgrade to 3.5.3 or later",
        (((0, 0, 0), (3, 5, 3)),),
    ),
    Defect(
        "its release line gets no fixes any more (3.7 ended in February 2024)",
        (((0, 0, 0), (3, 8, 0)),),
    ),
)


def warnings_for(version: str) -> tuple[str, ...]:
    """What a user of locks should know about a server of ``version``."""
    return warnings_about("ZooKeeper", version, _DEFECTS)
