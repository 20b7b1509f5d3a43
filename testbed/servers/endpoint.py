"""Where a service is and how coordlock reaches it: the URL of a test server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

__all__ = ["Endpoint", "External", "Service"]


@dataclass(frozen=True)
class Endpoint:
    """The parts of a coordlock URL, ``scheme://user:password@host:port,.../root?options``."""

    scheme: str
    hosts: tuple[str, ...]
    username: str | None = None
    password: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """The parts of ``url``; its root is left out."""
        parts = urlsplit(url)
        credentials, _, hosts = parts.netloc.rpartition("@")
        username, _, password = credentials.partition(":")
        return cls(
            parts.scheme,
            tuple(hosts.split(",")),
            unquote(username) or None,
            unquote(password) or None,
            dict(parse_qsl(parts.query)),
        )

    def url(self, root: str = "", **options: object) -> str:
        """The URL with ``root`` and further options, such as ``ttl="3s"``."""
        credentials = ""
        if self.username is not None:
            credentials = f"{quote(self.username, safe='')}:{quote(self.password or '', safe='')}@"
        query = urlencode({**self.options, **options})
        location = f"{self.scheme}://{credentials}{','.join(self.hosts)}{root}"
        return f"{location}?{query}" if query else location


class Service(ABC):
    """What tests ask of any service, whoever started it: where it is."""

    @property
    @abstractmethod
    def endpoint(self) -> Endpoint:
        """Where it is, and the credentials that coordlock uses."""

    @property
    def url(self) -> str:
        """The URL for ``coordlock.connect``, without a root."""
        return self.endpoint.url()

    def url_for(self, root: str = "", **options: object) -> str:
        """The URL with a root and options: ``server.url_for("/x", ttl="3s")``.

        A request may take longer than by default, because a busy machine stands still for seconds.
        """
        return self.endpoint.url(root, **{"request_timeout": "30s", **options})

    @property
    def host(self) -> str:
        """The host of the first endpoint."""
        return self.endpoint.hosts[0].rpartition(":")[0]

    @property
    def port(self) -> int:
        """The port of the first endpoint."""
        return int(self.endpoint.hosts[0].rpartition(":")[2])


class External(Service):
    """A service that somebody else runs."""

    def __init__(self, url: str) -> None:
        self._endpoint = Endpoint.parse(url)

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint
