"""What acquiring several locks at once returns: one grant for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from coordlock.errors import Unfenceable
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.locks.grant import AsyncGrant, BaseGrant, Grant
from coordlock.locks.sequencer import sequencer
from coordlock.model.claim import Claim, in_force

__all__ = ["AsyncMultiGrant", "GrantPart", "MultiGrant"]


@dataclass(frozen=True, slots=True)
class GrantPart:
    """What a grant of several locks holds of one of them, for the fence of its resource.

    Attributes:
        name: the lock's name.
        claim: the mode, or the permit, that was granted.
        token: the fencing token in this lock's queue.
        whole: the grant that it is a part of.
    """

    name: str
    claim: Claim
    token: int
    whole: MultiGrant | AsyncMultiGrant

    @property
    def sequencer(self) -> str:
        """The token as a text, for other processes: see `Grant.sequencer`."""
        return sequencer(self.name, self.claim, self.token)

    def check(self) -> None:
        """Raise `LockLost` unless the whole grant is held."""
        self.whole.check()


class _Several(BaseGrant, shown="MultiGrant"):
    """What the sync and the async grant of several locks share."""

    def __init__(self, engine: Engine, ticket: Ticket, node: str | None = None) -> None:
        """``node`` is that of the locks that the grant is meant for, in a tree."""
        super().__init__(engine, ticket)
        self._node = node
        if node is not None:
            self.name = node

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks, in the order in which they were asked for."""
        return tuple([entry.queue for entry in self._ticket.entries])

    @property
    def claims(self) -> Mapping[str, Claim]:
        """The mode, or the permit, that was granted of each name."""
        entries = self._ticket.entries
        return MappingProxyType({entry.queue: in_force(entry.claim) for entry in entries})

    @property
    def tokens(self) -> Mapping[str, int]:
        """The fencing token of each name. They are equal, but with ZooKeeper's token=sequence."""
        tokens = (one.token or 0 for one in self._ticket.contenders)
        return MappingProxyType(dict(zip(self.names, tokens, strict=True)))

    @property
    def claim(self) -> Claim:
        """What was granted of every name, in a tree of the node.

        Raises `Unfenceable` for names with different claims.
        """
        if self._node is not None:
            return self.claims[self._node]
        first, *others = self.claims.values()
        if any(claim != first for claim in others):
            raise self._differing("modes")
        return first

    @property
    def token(self) -> int:
        """The fencing token of all names, in a tree that of the node.

        Raises `Unfenceable` for names with different tokens.
        """
        if self._node is not None:
            return self.tokens[self._node]
        if len(set(self.tokens.values())) > 1:
            raise self._differing("tokens")
        return self._first_token

    @property
    def sequencer(self) -> str:
        """The token as a text, of one name and in a tree of the node: see `Grant.sequencer`.

        Raises `Unfenceable` for several names, whose parts have one each.
        """
        if self._node is None and len(self.names) > 1:
            raise self._differing("names")
        name = self._node or self.names[0]
        return sequencer(name, self.claims[name], self.tokens[name])

    def _differing(self, what: str) -> Unfenceable:
        problem = f"has several {what}: use the part for a lock, such as grant[{self.names[0]!r}]"
        return Unfenceable(self.name, self._first_token, "several locks", problem)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> GrantPart:
        """The part of the lock ``name``, which fences take. Raises KeyError for another name."""
        assert isinstance(self, MultiGrant | AsyncMultiGrant)
        return GrantPart(name, self.claims[name], self.tokens[name], self)


class MultiGrant(_Several, Grant):
    """Several locks that are held together. A context manager that releases all of them.

    To lose one of them is to lose all: then the others are released at once.
    """


class AsyncMultiGrant(_Several, AsyncGrant):
    """Several locks that are held together. An async context manager that releases all of them.

    To lose one of them is to lose all: then the others are released at once.
    """
