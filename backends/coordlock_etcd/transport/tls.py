"""Credentials of gRPC's channels, from files."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc

from coordlock.backend.tls import tls_context

__all__ = ["channel_credentials"]


def channel_credentials(options: Mapping[str, Any]) -> grpc.ChannelCredentials | None:
    """What secure channels need, by the options `TLS_OPTIONS`; None without TLS.

    Raises `ConfigurationError` before gRPC, which would only say at connect that the handshake
    failed.
    """
    if tls_context(options) is None:
        return None
    ca, cert = options.get("ca"), options.get("cert")
    return grpc.ssl_channel_credentials(
        root_certificates=Path(ca).read_bytes() if ca else _system_authorities(),
        private_key=Path(options.get("key") or cert).read_bytes() if cert else None,
        certificate_chain=Path(cert).read_bytes() if cert else None,
    )


def _system_authorities() -> bytes | None:
    """The system's authorities, or None for the ones of gRPC."""
    path = ssl.get_default_verify_paths().cafile
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read() or None
    except OSError:
        return None
