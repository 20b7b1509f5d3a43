"""What clients offer beside locks. Nothing is loaded before it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordlock.access import Access
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.resident import Resident

if TYPE_CHECKING:
    from coordlock.recipes import group
    from coordlock.recipes.group import AsyncGroup, Group
else:
    group = Lazily("coordlock.recipes.group")

__all__ = ["AsyncRecipes", "Recipes"]


class Recipes(Resident, shown="Client"):
    """What `Client` offers beside locks."""

    _access: Access

    def group(self, name: str, *, label: str | None = None) -> Group:
        """The group ``name``: who is there, each member with a value. Nothing is sent yet.

        ``label`` is what others see of its members beside host and pid. A lock of the same name
        has the same queue, so give them different names. Raises `InvalidName`, and `Unsupported`
        where the backend keeps no values with contenders.
        """
        return group.Group(self._access, name, label)


class AsyncRecipes(Resident, shown="AsyncClient"):
    """What `AsyncClient` offers beside locks."""

    _access: Access

    def group(self, name: str, *, label: str | None = None) -> AsyncGroup:
        """The group ``name``: who is there, each member with a value. See `Client.group`."""
        return group.AsyncGroup(self._access, name, label)
