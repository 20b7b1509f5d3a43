"""Asks servers for their version, by the four-letter word that needs no session, and knows bugs."""

from __future__ import annotations

import re
import threading
from typing import Final

from coordlock.backend import ServiceInfo
from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.errors import SERVICE, translate
from coordlock_zookeeper.session import SessionClient

__all__ = ["Version", "describe", "parse_version", "warnings_for"]

Version = tuple[int, int, int]

_LONGEST_ANSWER: Final = 65_536


def describe(session_client: SessionClient, timeout: float) -> Promise[ServiceInfo]:
    """What the servers say within ``timeout`` seconds each; `BackendUnavailable` if none does."""
    promise: Promise[ServiceInfo] = Promise()

    def ask() -> None:
        try:
            promise.resolve(_ask_all(session_client, timeout))
        except Exception as error:
            promise.fail(translate(error))

    try:
        threading.Thread(target=ask, name="coordlock-zookeeper-describe", daemon=True).start()
    except RuntimeError as error:  # the interpreter is exiting
        promise.fail(BackendUnavailable(SERVICE, str(error)))
    return promise


def _ask_all(session_client: SessionClient, timeout: float) -> ServiceInfo:
    versions: set[Version] = set()
    silent: list[str] = []
    answers = 0
    for host, port in session_client.client.hosts:
        try:
            version = parse_version(_srvr(session_client, host, port, timeout))
        except OSError as error:
            silent.append(f"{host}:{port} does not answer: {error.strerror or error}")
            continue
        answers += 1
        if version is not None:
            versions.add(version)
    if not answers:
        raise BackendUnavailable(SERVICE, "; ".join(silent))
    warnings = silent + [text for version in sorted(versions) for text in warnings_for(version)]
    if not versions:
        warnings.append("the version is not known: 'srvr' is not in 4lw.commands.whitelist")
    return ServiceInfo(
        service="ZooKeeper",
        version=", ".join(".".join(map(str, version)) for version in sorted(versions)) or "unknown",
        endpoints=tuple(f"{host}:{port}" for host, port in session_client.client.hosts),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _srvr(session_client: SessionClient, host: str, port: int, timeout: float) -> str:
    with session_client.dial(host, port, timeout) as server:
        server.sendall(b"srvr")
        answer = b""
        while len(answer) < _LONGEST_ANSWER and (data := server.recv(4096)):
            answer += data
        return answer.decode("utf-8", "replace")


# What is known about releases of the server

_VERSION: Final = re.compile(r"Zookeeper version: (\d+)\.(\d+)\.(\d+)")
_SUPPORTED: Final[Version] = (3, 8, 0)

#: What it is, and from which release until before which.
_DEFECTS: Final[tuple[tuple[str, tuple[tuple[Version, Version], ...]], ...]] = (
    (
        "an ephemeral node may outlive its session after a follower failed (ZOOKEEPER-2355, fixed "
        "in 3.4.11): `coordlock evict` removes such a contender",
        (((0, 0, 0), (3, 4, 11)),),
    ),
    (
        "changes, contenders among them, may be lost when leaders change (ZOOKEEPER-4785, fixed in "
        "3.8.4 and 3.9.2)",
        (((3, 8, 0), (3, 8, 4)), ((3, 9, 0), (3, 9, 2))),
    ),
    (
        "changes, contenders among them, may be lost when leaders change (ZOOKEEPER-4925, fixed in "
        "3.9.4)",
        (((3, 9, 3), (3, 9, 4)),),
    ),
    (
        "a follower that shuts down may diverge from its ensemble (ZOOKEEPER-4712, fixed in 3.9.3)",
        (((3, 9, 0), (3, 9, 3)),),
    ),
    (
        "SASL DIGEST-MD5 may let in users that do not exist (ZOOKEEPER-4839, fixed in 3.9.3)",
        (((3, 9, 0), (3, 9, 3)),),
    ),
)


def parse_version(srvr: str) -> Version | None:
    """The version in the answer to the four-letter word ``srvr``; None without one."""
    match = _VERSION.search(srvr)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def warnings_for(version: Version) -> tuple[str, ...]:
    """What a user of locks should know about a server of ``version``."""
    found = [
        text
        for text, releases in _DEFECTS
        if any(first <= version < fixed for first, fixed in releases)
    ]
    if version < (3, 5, 3):
        found.append(
            "it has no container nodes (3.5.3 has): the nodes of unused lock names accumulate"
        )
    if version < _SUPPORTED:
        found.append("its release line gets no fixes any more (3.7 ended in February 2024)")
    return tuple(found)
