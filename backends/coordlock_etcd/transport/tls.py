"""Certificates from files, checked before the first connection."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import grpc

from coordlock.errors import ConfigurationError

__all__ = ["channel_credentials"]


def channel_credentials(options: Mapping[str, Any]) -> grpc.ChannelCredentials | None:
    """What secure channels need, from the options ``tls``, ``ca``, ``cert`` and ``key``.

    None without TLS. Raises `ConfigurationError` that names the option and the file when they do
    not fit together: gRPC itself would only say at connect that the handshake failed.
    """
    given = [name for name in ("ca", "cert", "key") if options.get(name) is not None]
    if not options.get("tls"):
        if given:
            raise ConfigurationError(f"option {given[0]!r} needs tls=true")
        return None
    if ("cert" in given) != ("key" in given):
        raise ConfigurationError("the options 'cert' and 'key' need each other")
    files = {name: _read(name, options[name]) for name in given}
    context = ssl.create_default_context()
    if "ca" in given:
        try:
            context.load_verify_locations(options["ca"])
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"option 'ca': {options['ca']} holds no certificate in PEM form: {error}"
            ) from None
    if "cert" in given:
        try:
            # A password keeps OpenSSL from asking for one at the terminal.
            context.load_cert_chain(options["cert"], options["key"], password="none")
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"options 'cert' and 'key': {options['cert']} and {options['key']} are no "
                f"certificate and its unencrypted key in PEM form: {error}"
            ) from None
    return grpc.ssl_channel_credentials(
        root_certificates=files.get("ca") or _system_authorities(),
        private_key=files.get("key"),
        certificate_chain=files.get("cert"),
    )


def _read(name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigurationError(f"option {name!r}: cannot read {path}: {error.strerror}") from None


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
