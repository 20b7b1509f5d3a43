"""Finding backends: nothing is imported before it is chosen.

Entry points name the backends. Those that come with coordlock are also listed here, because reading
the entry points of everything that is installed takes as long as starting Python.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from coordlock.backend import Backend
from coordlock.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

__all__ = ["backend_for_client", "backend_for_scheme", "schemes"]

_BACKENDS = "coordlock.backends"
_CLIENTS = "coordlock.clients"
#: What coordlock itself registers in the first of these groups.
_OWN: Final = {
    "etcd": "coordlock_etcd:EtcdBackend",
    "local": "coordlock_local:LocalBackend",
    "memory": "coordlock_memory:MemoryBackend",
    "postgres": "coordlock_postgresql:PostgresBackend",
    "postgresql": "coordlock_postgresql:PostgresqlBackend",
    "postgresql+psycopg": "coordlock_postgresql:PostgresqlPsycopgBackend",
    "redis": "coordlock_redis:RedisBackend",
    "redis+unix": "coordlock_redis:RedisUnixBackend",
    "rediss": "coordlock_redis:RedisTLSBackend",
    "redlock": "coordlock_redis:RedlockBackend",
    "valkey": "coordlock_redis:ValkeyBackend",
    "zookeeper": "coordlock_zookeeper:ZookeeperBackend",
}


def schemes() -> tuple[str, ...]:
    """The schemes of the backends that are registered, in alphabetical order."""
    return tuple(sorted({point.name for point in _points(_BACKENDS)}))


def backend_for_scheme(scheme: str) -> type[Backend]:
    """The backend class that is registered for ``scheme``.

    Raises `ConfigurationError` when its dependencies are not installed. Where no backend has the
    scheme, the error names the schemes that there are.
    """
    if scheme in _OWN:
        return _load(scheme, _OWN[scheme])
    for point in _points(_BACKENDS).select(name=scheme):
        return _load(point.name, point.value)
    raise ConfigurationError(
        f"there is no backend for {scheme + '://'!r}; there are: "
        + ", ".join(f"{name}://" for name in schemes())
    )


def backend_for_client(client: object) -> type[Backend]:
    """The backend class that can use an existing ``client`` of another library.

    Raises `ConfigurationError` when there is none.
    """
    for kind in type(client).__mro__:
        for point in _points(_CLIENTS).select(name=kind.__module__.partition(".")[0]):
            return _load(point.name, point.value)
    known = sorted({point.name for point in _points(_CLIENTS)})
    raise ConfigurationError(
        f"client is a {type(client).__module__}.{type(client).__qualname__}; "
        f"clients of these libraries can be used: {', '.join(known)}"
    )


def _points(group: str) -> EntryPoints:
    from importlib.metadata import entry_points  # not for the schemes that are known

    return entry_points(group=group)


def _check_threads() -> None:
    """Raise `ConfigurationError` where eventlet has replaced what backends wait with."""
    patcher: Any = sys.modules.get("eventlet.patcher")
    if patcher is not None and any(map(patcher.is_monkey_patched, ("thread", "socket", "select"))):
        raise ConfigurationError(
            "coordlock does not work under eventlet, which has replaced Python's threads and "
            "sockets: use gevent, asyncio or threads, or do not call eventlet.monkey_patch()"
        )


def _load(name: str, place: str) -> type[Backend]:
    _check_threads()
    module, _, attribute = place.partition(":")
    try:
        __import__(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == module.partition(".")[0]:
            raise  # not a dependency that is missing, but a part of the backend itself
        problem = f"the backend {name!r} needs {error.name}"
        raise ConfigurationError.missing(problem, name) from error
    backend: object = getattr(sys.modules[module], attribute, None)
    if not (isinstance(backend, type) and issubclass(backend, Backend)):
        raise ConfigurationError(
            f"{place!r} is registered as a backend, but is not a Backend class"
        )
    return backend
