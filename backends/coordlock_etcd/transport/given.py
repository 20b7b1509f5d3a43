"""The connection of an application's own client, an ``etcd3.Etcd3Client``, which stays open."""

from __future__ import annotations

from typing import Any, Final

import grpc

from coordlock.errors import ConfigurationError
from coordlock.runtime.promise import Promise, resolved
from coordlock_etcd.transport.cluster import Endpoint

__all__ = ["GivenEndpoint", "GivenLogin"]


class GivenEndpoint(Endpoint):
    """The channel of ``client``. Raises `ConfigurationError` for another kind of client."""

    def __init__(self, client: Any) -> None:
        channel = getattr(client, "channel", None)
        if not isinstance(channel, grpc.Channel):
            raise ConfigurationError(
                f"client must be an etcd3.Etcd3Client, not {type(client).__qualname__}"
            )
        super().__init__("the given client")
        self._channel = channel

    def renewed(self) -> GivenEndpoint:
        """The application has the only channel."""
        return self

    def close(self) -> None:
        """Use the channel no more. Calls under way end with their answers or deadlines."""
        self._closed = True


class GivenLogin:
    """The login of ``client``, which the application renews."""

    def __init__(self, client: Any) -> None:
        self._client: Final = client

    def token(self) -> Promise[str | None]:
        """The token that ``client`` has now, if any."""
        return resolved(dict(self._client.metadata or ()).get("token"))

    def forget(self, token: str | None) -> None:
        """Nothing: the next call has the token of its time."""
