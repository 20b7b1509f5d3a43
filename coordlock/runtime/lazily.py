"""Imports that are made when something of the module is first used."""

from __future__ import annotations

import sys

# Type checkers take this name for true; an import of `typing` takes as long as the rest of a start.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Lazily", "names_of"]


class Lazily:
    """Stands for the module ``name``, and imports it when something of it is asked for.

    For modules that take long to import and that many programs never use, where an import in each
    function that uses them would slow down what must be fast: what was asked for once is an
    attribute from then on. Type checkers see an import that stands beside it, under
    ``TYPE_CHECKING``.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        value: object = getattr(_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


def names_of(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package that shows names of its modules, and the modules themselves.

    ``modules`` says which has which names, with spaces between them. What was asked for once is an
    attribute of the package from then on.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}
    homes |= {module: module for module in modules}

    def find(name: str) -> object:
        if (home := homes.get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = _module(f"{package}.{home}")
        value: object = module if name == home else getattr(module, name)
        setattr(_module(package), name, value)
        return value

    return find


def _module(name: str) -> object:
    # Not by importlib, which has to be imported itself.
    __import__(name)
    return sys.modules[name]
