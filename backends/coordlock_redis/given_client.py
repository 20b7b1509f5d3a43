"""How a client of redis-py or valkey-py connects, for connections of coordlock's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from coordlock.errors import ConfigurationError
from coordlock.runtime.clock import Clock
from coordlock_redis.servers import Servers

__all__ = ["servers_of"]

#: What is taken over of a connection's arguments, besides those whose names begin with ``ssl_``.
_TAKEN: Final = frozenset(
    {"db", "username", "password", "credential_provider", "socket_keepalive", "client_name"}
)


def servers_of(client: object, key: bytes, timeout: float, clock: Clock, script: bytes) -> Servers:
    """Where the client's server is. Its answers' decoding and its retries don't matter."""
    servers = partial(Servers, key=key, timeout=timeout, clock=clock, script=script)
    if (nodes := getattr(client, "nodes_manager", None)) is not None:  # a cluster's
        arguments = dict(getattr(nodes, "connection_kwargs", {}))
        hosts = [(str(node.host), int(node.port)) for node in nodes.startup_nodes.values()]
        tls = _is_encrypted(arguments.get("connection_class"), arguments)
        return servers(hosts, tls=tls, arguments=_taken(arguments))
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        kind = type(client)
        raise ConfigurationError(
            f"client is a {kind.__module__}.{kind.__qualname__}; a Redis, a RedisCluster, or what "
            "Sentinel.master_for() gives can be used"
        )
    arguments = dict(pool.connection_kwargs)
    tls = _is_encrypted(pool.connection_class, arguments)
    manager = getattr(pool, "sentinel_manager", None)
    if manager is not None:
        sentinels = [sentinel.connection_pool for sentinel in manager.sentinels]
        if not getattr(pool, "is_master", True):
            raise ConfigurationError("client is one for replicas: give one by master_for()")
        places = [pool.connection_kwargs for pool in sentinels]
        hosts = [(str(place["host"]), int(place["port"])) for place in places]
        sentinel_tls = bool(sentinels) and _is_encrypted(sentinels[0].connection_class, places[0])
        own = _taken(places[0]) if sentinels else {}
        own.pop("db", None)
        return servers(
            hosts,
            sentinel=str(pool.service_name),
            tls=tls,
            arguments=_taken(arguments),
            sentinel_tls=sentinel_tls,
            sentinel_arguments=own,
        )
    taken = _taken(arguments)
    if "path" in arguments:
        return servers([], path=arguments["path"], arguments=taken)
    host = (str(arguments.get("host", "localhost")), int(arguments.get("port", 6379)))
    return servers([host], tls=tls, arguments=taken)


def _taken(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in arguments.items()
        if (name in _TAKEN or name.startswith("ssl_")) and value is not None
    }


def _is_encrypted(kind: type | None, arguments: Mapping[str, Any]) -> bool:
    """By the class of the connections, because some clients keep no argument ``ssl``."""
    names = {base.__name__ for base in kind.__mro__} if kind is not None else set()
    return "SSLConnection" in names or bool(arguments.get("ssl"))
