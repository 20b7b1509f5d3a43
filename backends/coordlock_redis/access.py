"""How to reach Redis, by the settings or as a client of another library does."""

from __future__ import annotations

from typing import Any, Final

from coordlock.backend.tls import tls_context
from coordlock.errors import ConfigurationError
from coordlock.runtime.clock import Clock
from coordlock.settings import Settings
from coordlock_redis.options import TCP
from coordlock_redis.servers import Servers

__all__ = ["prefix", "servers"]

#: The schemes whose path is the number of a database to other libraries.
_NUMBERED: Final = frozenset({"redis", "rediss", "valkey"})


def prefix(root: str) -> bytes:
    """What the names of all keys and channels of a root begin with: a hash tag, and a colon.

    A tag ends at its first closing brace.
    """
    tag = root.replace("%", "%25").replace("}", "%7D")
    return f"{{{tag}}}:".encode("utf-8", "surrogatepass")


def servers(
    settings: Settings, client: object | None, clock: Clock, script: bytes, *, tls: bool
) -> Servers:
    """Where to look. Raises `ConfigurationError`."""
    key = prefix(settings.root) + b"state"
    options = settings.options
    if client is not None:
        from coordlock_redis.given_client import servers_of

        _refuse_contradictions(settings)
        return servers_of(client, key, settings.request_timeout, clock, script)
    path = options.get("socket")
    if settings.scheme == "redis+unix":
        if settings.hosts or not path:
            raise ConfigurationError(
                "redis+unix:// has no host and names the server's socket as an option: "
                "redis+unix:///locks?socket=/run/redis/redis-server.sock"
            )
    elif not settings.hosts:
        raise ConfigurationError(f"{settings.scheme}:// needs a host, such as redis://localhost")
    elif settings.scheme in _NUMBERED and (digits := settings.root[1:]).isdecimal():
        url = f"{settings.scheme}://{','.join(settings.hosts)}"
        raise ConfigurationError(
            f"{url}/{digits}: the path is the root of all names, and not the number of a database: "
            f"write {url}?db={digits} for that, without another slash, or a root with a letter, "
            f"such as {url}/locks{digits}"
        )
    hosts = [_host(host) for host in settings.hosts]
    encryption: dict[str, Any] = {}
    tls_context({**options, "tls": tls})  # for its errors: redis-py makes its own
    if tls:
        encryption = {
            "ssl_ca_certs": options["ca"],
            "ssl_certfile": options["cert"],
            "ssl_keyfile": options["key"],
            "ssl_check_hostname": True,
        }
    login = {"username": settings.username or None, "password": settings.password or None}
    sentinel_login = {
        "username": options.get("sentinel_username"),
        "password": options.get("sentinel_password"),
    }
    return Servers(
        hosts,
        key,
        settings.request_timeout,
        clock,
        script,
        path=path,
        sentinel=options.get("sentinel"),
        tls=tls,
        sentinel_tls=tls,
        arguments={"db": options["db"], **login, **encryption},
        sentinel_arguments={**sentinel_login, **encryption},
    )


def _refuse_contradictions(settings: Settings) -> None:
    """Raise `ConfigurationError` for a setting that the given client has."""
    given = {
        "hosts": settings.hosts,
        "username": settings.username,
        "password": settings.password,
        **{name: settings.options.get(name) for name in ("db", *(each.name for each in TCP))},
    }
    if wrong := [name for name, value in given.items() if value]:
        raise ConfigurationError(
            f"{', '.join(wrong)}: the client given as client= says that: leave it out"
        )


def _host(host: str) -> tuple[str, int]:
    name, _, port = host.rpartition(":")
    return name.strip("[]"), int(port)
