"""How a client reaches its servers and proves its identity, from the settings. I/O: files only."""

from __future__ import annotations

import importlib.util
import ssl
from dataclasses import dataclass, field

from coordlock.backend.tls import tls_context
from coordlock.errors import ConfigurationError
from coordlock.settings import Settings

__all__ = ["Access"]


@dataclass(frozen=True, slots=True)
class Access:
    """Everything that a client of our own is made from.

    ``digest`` and ``sasl`` hold secrets and are not shown.
    """

    hosts: str
    ttl: float
    connect_timeout: float
    tls: ssl.SSLContext | None = None
    digest: str | None = field(default=None, repr=False)
    sasl: dict[str, str] | None = field(default=None, repr=False)

    @property
    def identified(self) -> bool:
        """Whether the client presents credentials, so that an ACL can name it."""
        return self.digest is not None or self.sasl is not None

    @classmethod
    def of(cls, settings: Settings) -> Access:
        """What ``settings`` ask for; raises `ConfigurationError` for what cannot work."""
        if not settings.hosts:
            raise ConfigurationError("a zookeeper URL needs a host: zookeeper://HOST[:PORT]/ROOT")
        digest, sasl = _credentials(settings)
        return cls(
            hosts=",".join(settings.hosts),
            ttl=settings.ttl,
            connect_timeout=settings.connect_timeout,
            tls=tls_context(settings.options),
            digest=digest,
            sasl=sasl,
        )


def _credentials(settings: Settings) -> tuple[str | None, dict[str, str] | None]:
    username, password = settings.username, settings.password
    if username is None and password is None:
        if settings.options["auth"] == "sasl":
            raise ConfigurationError("option 'auth': sasl needs a user name and a password")
        return None, None
    if not username or password is None:
        raise ConfigurationError("zookeeper takes a user name and a password, or neither")
    if settings.options["auth"] == "sasl":
        if importlib.util.find_spec("puresasl") is None:
            raise ConfigurationError(
                "option 'auth': sasl needs the package pure-sasl; "
                "install it with: pip install 'coordlock[sasl]'"
            )
        return None, {"mechanism": "DIGEST-MD5", "username": username, "password": password}
    if ":" in username:
        raise ConfigurationError("a user name for digest authentication cannot hold a colon")
    return f"{username}:{password}", None
