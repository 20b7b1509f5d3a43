"""Certificates from files, checked before the first connection."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from coordlock.errors import ConfigurationError

__all__ = ["tls_context"]


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext | None:
    """What verifies servers and identifies the client, by the options `TLS_OPTIONS`.

    None without TLS. Raises `ConfigurationError`, which names the option and the file.
    """
    given = [name for name in ("ca", "cert", "key") if options.get(name) is not None]
    if not options["tls"]:
        if given:
            raise ConfigurationError(f"option {given[0]!r} needs tls=true")
        return None
    if "key" in given and "cert" not in given:
        raise ConfigurationError("option 'key' needs option 'cert'")
    for name in given:
        _check_readable(name, options[name])
    ca, cert = options.get("ca"), options.get("cert")
    key = options.get("key") or cert
    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"option 'ca': {ca} holds no certificate in PEM form: {error}"
        ) from None

    def refuse() -> str:  # else OpenSSL asks on the terminal
        raise ConfigurationError(
            f"option 'key': {key} is encrypted, and coordlock asks for no pass phrase: write it "
            "without one (openssl pkey -in KEY -out NEW), readable for this user alone"
        )

    if cert:
        try:
            context.load_cert_chain(cert, key, refuse)
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"options 'cert' and 'key': {cert} and {key} are no certificate and its key in "
                f"PEM form: {error}"
            ) from None
    return context


def _check_readable(name: str, path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigurationError(f"option {name!r}: cannot read {path}: {error.strerror}") from None
