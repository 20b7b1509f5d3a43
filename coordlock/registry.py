"""Finding backends: entry points name them, nothing is imported before it is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordlock.backend import Backend
from coordlock.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

__all__ = ["backend_for_client", "backend_for_scheme", "schemes"]

_BACKENDS = "coordlock.backends"
_CLIENTS = "coordlock.clients"


def schemes() -> tuple[str, ...]:
    """The schemes of the backends that are registered, in alphabetical order."""
    return tuple(sorted({point.name for point in _points(_BACKENDS)}))


def backend_for_scheme(scheme: str) -> type[Backend]:
    """The backend class that is registered for ``scheme``.

    Raises `MissingExtra` when its dependencies are not installed, `ConfigurationError` when there
    is none, naming those there are.
    """
    for point in _points(_BACKENDS).select(name=scheme):
        return _load(point)
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
            return _load(point)
    known = sorted({point.name for point in _points(_CLIENTS)})
    raise ConfigurationError(
        f"client is a {type(client).__module__}.{type(client).__qualname__}; "
        f"clients of these libraries can be used: {', '.join(known)}"
    )


def _points(group: str) -> EntryPoints:
    from importlib.metadata import entry_points  # not where coordlock is only imported

    return entry_points(group=group)


def _load(point: EntryPoint) -> type[Backend]:
    try:
        backend = point.load()
    except MissingExtra:
        raise
    except AttributeError as error:
        raise ConfigurationError(f"{point.value!r}, the backend {point.name!r}: {error}") from error
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == point.module.partition(".")[0]:
            raise  # not a dependency that is missing, but a part of the backend itself
        raise MissingExtra(f"the backend {point.name!r} needs {error.name}", point.name) from error
    if not (isinstance(backend, type) and issubclass(backend, Backend)):
        raise ConfigurationError(f"{point.value!r} is registered as a backend and is none")
    return backend
