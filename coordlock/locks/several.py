"""Several locks that are acquired at once, those of a node in a tree, and their grants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from coordlock.errors import InvalidName, Unsupported
from coordlock.kernel.access import Access
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.locks.base_grant import BaseGrant, no_token
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.locks.lock import AcquireOptions, AwaitingLock, BaseLock, BlockingLock
from coordlock.model.claim import AnyClaim, Claim, Mode, Permit, in_force
from coordlock.model.names import check_name, joined
from coordlock.model.queue_entry import QueueEntry
from coordlock.model.sequencer import sequencer
from coordlock.runtime.driver import Steps, awaiting, blocking

__all__ = [
    "AsyncMultiGrant",
    "AsyncMultiLock",
    "GrantPart",
    "MultiGrant",
    "MultiLock",
    "claims_of",
    "claims_of_path",
]


@dataclass(frozen=True, slots=True)
class GrantPart:
    """One lock's part of a grant of several locks, for the fence of its resource.

    A value: whether the lock is still held, its grant knows.

    Attributes:
        name: the lock's name.
        claim: the mode, or the permit, that was granted.
    """

    name: str
    claim: Claim
    _token: int | None
    _scheme: str

    @property
    def token(self) -> int:
        """The fencing token in this lock's queue.

        Raises `Unsupported` where the service has none.
        """
        if self._token is None:
            raise no_token(self.name, self._scheme)
        return self._token

    @property
    def sequencer(self) -> str:
        """The token as a text, for other processes: see `Grant.sequencer`.

        Raises what ``token`` raises.
        """
        return sequencer(self.name, self.claim, self.token)


class _MultiGrant(BaseGrant):
    """What the sync and the async grant of several locks share."""

    def __init__(self, engine: Engine, ticket: Ticket, node: str | None = None) -> None:
        """``node``: for a tree lock, the name of the node itself; the other locks are above it."""
        super().__init__(engine, ticket)
        self._node = node
        if node is not None:
            self.name = node

    @property
    def parts(self) -> dict[str, GrantPart]:
        """What was granted of each lock, by name, in the order in which they were asked for."""
        scheme = self._engine.settings.scheme
        is_fenced = self._engine.backend.capabilities.fenced
        return {
            entry.queue: GrantPart(
                entry.queue, in_force(entry.claim), contender.token if is_fenced else None, scheme
            )
            for entry, contender in zip(self._ticket.entries, self._ticket.contenders, strict=True)
        }

    @property
    def claim(self) -> Claim:
        """The mode, or the permit, of the only name; of a tree lock, the mode of its node.

        Raises `Unsupported` for several names.
        """
        return self._part.claim

    @property
    def token(self) -> int:
        """The fencing token of the only name; of a tree lock, that of its node.

        Raises `Unsupported` for several names, and where the service has none.
        """
        return self._part.token

    @property
    def sequencer(self) -> str:
        """The token of the only name, or of a tree lock's node, as a text: see `Grant.sequencer`.

        Raises what ``token`` raises.
        """
        return self._part.sequencer

    @property
    def _part(self) -> GrantPart:
        parts = self.parts
        if self._node is not None:
            return parts[self._node]
        if len(parts) > 1:
            first = next(iter(parts))
            problem = f"has several parts: use that of one lock, such as grant.parts[{first!r}]"
            raise Unsupported(f"the grant of {self.name!r} {problem}")
        return parts[self.name]


class MultiGrant(_MultiGrant, Grant):
    """Several locks that are held together. A context manager that releases all of them.

    Losing one of them loses all: the others are released at once.
    """


class AsyncMultiGrant(_MultiGrant, AsyncGrant):
    """Several locks that are held together. An async context manager that releases all of them.

    Losing one of them loses all: the others are released at once.
    """


def claims_of(access: Access, locks: Iterable[object], mode: Mode) -> dict[str, AnyClaim]:
    """The claims of ``locks``: of names in ``mode``, of lock objects in their own.

    Raises what `_merged` does, TypeError for anything else, and ValueError for a lock object of
    another client.
    """
    if isinstance(locks, str):
        raise TypeError(f"multi_lock takes a list of names, as in multi_lock([{locks!r}])")
    return _merged(wanted for lock in locks for wanted in _wanted(access, lock, mode))


def _wanted(access: Access, lock: object, mode: Mode) -> Iterable[tuple[str, AnyClaim]]:
    if isinstance(lock, str):
        return [(lock, mode)]
    if not isinstance(lock, BaseLock):
        raise TypeError(f"multi_lock takes names and locks of client.lock(...), not {lock!r}")
    if lock._access is not access:
        raise ValueError(f"{lock!r} is of another client: give locks of this one, or their names")
    if lock._acquired_alone is not None:
        raise ValueError(f"{lock!r} {lock._acquired_alone}")
    return lock._claims.items()


def _merged(wanted: Iterable[tuple[str, AnyClaim]]) -> dict[str, AnyClaim]:
    """The claim of each name, in the order of their first mention.

    A name that is given in several modes is claimed in the weakest that contains them all. Raises
    `InvalidName`, and ValueError for no names, for a semaphore that is given twice, and for one
    that is given as a lock, too.
    """
    claims: dict[str, AnyClaim] = {}
    for name, claim in wanted:
        before = claims.get(check_name(name))
        if before is None:
            claims[name] = claim
        elif isinstance(before, Mode) and isinstance(claim, Mode):
            claims[name] = before.joined(claim)
        elif isinstance(before, Permit) and isinstance(claim, Permit):
            raise ValueError(
                f"the semaphore {name!r} is given twice, but one acquire takes one permit of it: "
                "give it once"
            )
        else:
            raise ValueError(
                f"{name!r} is given both as {before} and as {claim}: use one name for one kind"
            )
    if not claims:
        raise ValueError("no names are given: give at least one, as in multi_lock(['a', 'b'])")
    return claims


def claims_of_path(path: str, mode: Mode) -> dict[str, AnyClaim]:
    """The claims of a tree lock: ``mode`` on the node at ``path``, intentions on its ancestors.

    Those are CR for a mode that reads below them, CW for one that writes, and NL for NL: Gray's IS
    and IX. Raises `InvalidName` for a bad path, such as ``/a``, ``a//b`` or ``a/../b``.
    """
    check_name(path)
    steps = path.split("/")
    if "" in steps or "." in steps or ".." in steps:
        raise InvalidName(
            path,
            "is not a path in a tree of locks: write names with single slashes between them, as in "
            "'eu/orders/42', without '.' and '..'",
        )
    intention = {Mode.NL: Mode.NL, Mode.CR: Mode.CR, Mode.PR: Mode.CR}.get(mode, Mode.CW)
    ancestors = ("/".join(steps[:depth]) for depth in range(1, len(steps)))
    return {**dict.fromkeys(ancestors, intention), path: mode}


G = TypeVar("G", bound=MultiGrant | AsyncMultiGrant)


class _MultiLock(BaseLock[G]):
    """What the sync and the async lock of several names share."""

    def __init__(
        self,
        access: Access,
        claims: Mapping[str, AnyClaim],
        options: AcquireOptions,
        node: str | None = None,
    ) -> None:
        """``node``: for a tree lock, the name of the node itself; the other names are above it."""
        name = joined(claims) if node is None else node
        super().__init__(access, name, claims, options)
        self._node = node
        if len(claims) > 1:
            access.engine.backend.require("sets")

    def _make(self, engine: Engine, ticket: Ticket) -> G:
        grant: G = self._grant_kind(engine, ticket, self._node)
        return grant

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order in which they were given."""
        return tuple(self._claims)

    @property
    def claims(self) -> Mapping[str, AnyClaim]:
        """The mode, or the permit, that it asks for, by name."""
        return dict(self._claims)

    def _contenders(self) -> Steps[dict[str, tuple[QueueEntry, ...]]]:
        """The queue of each name in order, holders and waiters. Raises `BackendUnavailable`.

        It reads the queues one after the other, so they may be of different moments.
        """
        queues = {}
        for name in self._claims:
            queues[name] = yield from self._access.engine.queue(name)
        return queues


class MultiLock(_MultiLock[MultiGrant], BlockingLock[MultiGrant]):
    """Several locks, which are acquired in one step. Made by `Client`; cheap and reusable.

    All or none are granted, under one deadline. All are requested at the same moment, so two
    multi-locks never wait for each other, whatever the order of their names.
    """

    _grant_kind = MultiGrant

    contenders = blocking(_MultiLock[MultiGrant]._contenders)


class AsyncMultiLock(_MultiLock[AsyncMultiGrant], AwaitingLock[AsyncMultiGrant]):
    """Several locks, which are acquired in one step, for asyncio. Made by `AsyncClient`.

    All or none are granted, under one deadline. All are requested at the same moment, so two
    multi-locks never wait for each other, whatever the order of their names.
    """

    _grant_kind = AsyncMultiGrant

    contenders = awaiting(_MultiLock[AsyncMultiGrant]._contenders)
