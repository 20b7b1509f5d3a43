"""The application's own ``etcd3.Etcd3Client``: its channel and its token."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from coordlock.errors import ConfigurationError

__all__ = ["channel_of", "token_of"]


def channel_of(client: object) -> grpc.Channel:
    """The channel of ``client``."""
    channel = getattr(client, "channel", None)
    if not isinstance(channel, grpc.Channel):
        raise ConfigurationError(
            f"client must be an etcd3.Etcd3Client, not {type(client).__qualname__}"
        )
    return channel


def token_of(client: object | None) -> str | None:
    """The token with which ``client`` is logged in, if it is."""
    metadata: Sequence[tuple[str, str]] = getattr(client, "metadata", None) or ()
    return dict(metadata).get("token")
