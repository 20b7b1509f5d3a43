"""Asks servers for their version, by the four-letter word that needs no session."""

from __future__ import annotations

import threading

from coordlock.backend import ServiceInfo
from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.errors import SERVICE, translate
from coordlock_zookeeper.session import SessionClient
from coordlock_zookeeper.versions import Version, parse_version, warnings_for

__all__ = ["describe"]

_LONGEST_ANSWER = 65_536


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
        service=SERVICE,
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
