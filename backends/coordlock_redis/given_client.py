"""How a client of redis-py or valkey-py connects, for connections of coordlock's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coordlock.errors import ConfigurationError
from coordlock.runtime.clock import Clock
from coordlock_redis.servers import Host, Servers

__all__ = ["servers_of"]

#: What is taken over of a connection's arguments, besides those whose names begin with ``ssl_``.
_TAKEN: Final = frozenset(
    {"db", "username", "password", "credential_provider", "socket_keepalive", "client_name"}
)


def servers_of(client: object, key: bytes, timeout: float, clock: Clock) -> Servers:
    """Where the client's server is. Its answers' decoding and its retries don't matter."""
    if (nodes := getattr(client, "nodes_manager", None)) is not None:  # a cluster's
        arguments = dict(getattr(nodes, "connection_kwargs", {}))
        hosts = [(str(node.host), int(node.port)) for node in nodes.startup_nodes.values()]
        return _servers(hosts, key, timeout, clock, arguments, _is_encrypted(arguments))
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        kind = type(client)
        raise ConfigurationError(
            f"client is a {kind.__module__}.{kind.__qualname__}; a Redis, a RedisCluster, or what "
            "Sentinel.master_for() gives can be used"
        )
    arguments = dict(pool.connection_kwargs)
    kinds = {kind.__name__ for kind in pool.connection_class.__mro__}
    tls = "SSLConnection" in kinds or _is_encrypted(arguments)
    manager = getattr(pool, "sentinel_manager", None)
    if manager is not None:
        sentinels = [one.connection_pool.connection_kwargs for one in manager.sentinels]
        if not getattr(pool, "is_master", True):
            raise ConfigurationError("client is one for replicas: give one by master_for()")
        hosts = [(str(one["host"]), int(one["port"])) for one in sentinels]
        own = _taken(sentinels[0]) if sentinels else {}
        own.pop("db", None)
        return Servers(
            hosts,
            key,
            timeout,
            clock,
            sentinel=str(pool.service_name),
            tls=tls,
            arguments=_taken(arguments),
            sentinel_arguments=own,
        )
    if "path" in arguments:
        return Servers([], key, timeout, clock, path=arguments["path"], arguments=_taken(arguments))
    host = (str(arguments.get("host", "localhost")), int(arguments.get("port", 6379)))
    return _servers([host], key, timeout, clock, arguments, tls)


def _servers(
    hosts: list[Host],
    key: bytes,
    timeout: float,
    clock: Clock,
    arguments: Mapping[str, Any],
    tls: bool,
) -> Servers:
    return Servers(hosts, key, timeout, clock, tls=tls, arguments=_taken(arguments))


def _taken(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in arguments.items()
        if (name in _TAKEN or name.startswith("ssl_")) and value is not None
    }


def _is_encrypted(arguments: Mapping[str, Any]) -> bool:
    return bool(arguments.get("ssl"))
