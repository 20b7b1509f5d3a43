"""All values of one folder, as they are together at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from coordlock.backend import Listing, VersionedValue
from coordlock.errors import InvalidName
from coordlock.kernel.access import Access
from coordlock.recipes.shared.observer import AsyncObserver, Observer
from coordlock.recipes.value import BaseData
from coordlock.runtime.driver import Steps, awaiting, blocking

__all__ = ["AsyncValues", "Values", "ValuesView"]


@dataclass(frozen=True, slots=True)
class ValuesView:
    """The values of a folder at one moment, and what changed since the last view.

    Two views are equal when their values are.

    Attributes:
        values: by key, in the order of the keys.
        added: the values of new keys; at first all.
        changed: the new values of keys that had another one.
        removed: the old values of keys that are gone.
    """

    values: Mapping[str, VersionedValue]
    added: Mapping[str, VersionedValue] = field(default_factory=dict, compare=False)
    changed: Mapping[str, VersionedValue] = field(default_factory=dict, compare=False)
    removed: Mapping[str, VersionedValue] = field(default_factory=dict, compare=False)


def _view(listing: Listing, before: ValuesView | None) -> ValuesView:
    known: Mapping[str, VersionedValue] = {} if before is None else before.values
    now = listing.values
    return ValuesView(
        MappingProxyType(dict(now)),
        added={key: value for key, value in now.items() if key not in known},
        changed={key: value for key, value in now.items() if known.get(key, value) != value},
        removed={key: value for key, value in known.items() if key not in now},
    )


class _BaseValues(BaseData):
    """What sync and async folders of values share."""

    def __init__(self, access: Access, folder: str) -> None:
        if folder == "/":
            raise InvalidName(
                folder, "is the top, not a folder: name one, such as '/app/config'", "key"
            )
        super().__init__(access, folder[:-1] if str(folder).endswith("/") else folder)
        self._where = f"{self._path}/"
        #: An absolute path that ends with a slash.
        self.folder: Final = self._where

    def _get(self) -> Steps[Mapping[str, VersionedValue]]:
        """The value of each key directly in the folder, all at one moment, in the keys' order.

        It includes every write acknowledged before the call. Raises `BackendUnavailable`.
        """
        return (yield from self._listing()).values


class Values(_BaseValues):
    """All values of a folder, read together at one moment. Made by `Client`; reusable.

    As in::

        for view in client.values("/app/config").observe():
            configure({key: stored.data for key, stored in view.values.items()})
    """

    get = blocking(_BaseValues._get)

    def observe(self) -> Observer[ValuesView]:
        """An iterator of the present view of the folder and of each new one.

        It shows each transaction as a whole. It is also a cache: see `Value.observe`.
        """
        return Observer(self._access.engine, self._begin, _view, "folder", self.folder)


class AsyncValues(_BaseValues):
    """All values of a folder, read together at one moment. Made by `AsyncClient`."""

    get = awaiting(_BaseValues._get)

    def observe(self) -> AsyncObserver[ValuesView]:
        """An async iterator of views of the folder; see `Values.observe`."""
        return AsyncObserver(self._access.engine, self._begin, _view, "folder", self.folder)
