"""What clients offer beside locks. Nothing is loaded before it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordlock.access import Access
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.resident import Resident
from coordlock.settings import DEFAULT, Timeout

if TYPE_CHECKING:
    from coordlock.recipes import election, group
    from coordlock.recipes.election import AsyncElection, Election
    from coordlock.recipes.group import AsyncGroup, Group
    from coordlock.runtime.cancellation import Cancellation
else:
    election = Lazily("coordlock.recipes.election")
    group = Lazily("coordlock.recipes.group")

__all__ = ["AsyncRecipes", "Recipes"]


class Recipes(Resident, shown="Client"):
    """What `Client` offers beside locks."""

    _access: Access

    def election(
        self,
        name: str,
        proposal: bytes | None = None,
        *,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
    ) -> Election:
        """The election ``name``: of those that campaign, one leads. Nothing is sent yet.

        ``proposal``, up to 65,536 bytes, is what others know this candidate by, such as its
        address; host and process id by default. ``timeout`` in seconds is the default of
        ``campaign``, and ``max_hold`` for how long a term may last before it is lost, by default
        the client's. ``cancellation`` ends its campaigns from elsewhere.

        It is the exclusive lock of the same name, so give locks other names. Raises `InvalidName`,
        TypeError and ValueError for what is no proposal, and `Unsupported` where the backend keeps
        no values with contenders.
        """
        return election.Election(self._access, name, proposal, timeout, max_hold, cancellation)

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

    def election(
        self,
        name: str,
        proposal: bytes | None = None,
        *,
        timeout: Timeout = DEFAULT,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
    ) -> AsyncElection:
        """The election ``name``: of those that campaign, one leads. See `Client.election`."""
        return election.AsyncElection(self._access, name, proposal, timeout, max_hold, cancellation)

    def group(self, name: str, *, label: str | None = None) -> AsyncGroup:
        """The group ``name``: who is there, each member with a value. See `Client.group`."""
        return group.AsyncGroup(self._access, name, label)
