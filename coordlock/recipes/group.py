"""Groups of members, each with a value.

A member is a contender in mode NL, which waits for none and keeps none waiting.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final, Generic, TypeVar, cast

from coordlock.kernel.access import Access
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.ticket import Ticket
from coordlock.locks.publishing import check_value
from coordlock.model.claim import Mode
from coordlock.model.contender import Announcement
from coordlock.recipes.member_list import (
    IDENTITY,
    Member,
    MemberList,
    members_of,
    observe_members,
)
from coordlock.recipes.membership import AsyncMembership, AsyncPresence, Membership, Presence
from coordlock.recipes.shared.observer import AsyncObserver, Begin, Observer
from coordlock.recipes.shared.recipe import QueueRecipe
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.settings import DEFAULT, Default, Duration, label_of, seconds_of

__all__ = ["AsyncGroup", "Group", "GroupView", "Member", "view_of"]

M = TypeVar("M", Membership, AsyncMembership)
P = TypeVar("P", Presence, AsyncPresence)


@dataclass(frozen=True, slots=True)
class GroupView:
    """The members at one moment, and what changed since the observer's last view.

    Two views are equal when their members are.

    Attributes:
        members: in the order in which they joined. After an outage also earlier members that may
            return; these are not ``confirmed``.
        joined: the members that are new; at first all.
        left: the members that have left.
        changed: the members that publish another value now.
    """

    members: tuple[Member, ...]
    joined: tuple[Member, ...] = field(default=(), compare=False)
    left: tuple[Member, ...] = field(default=(), compare=False)
    changed: tuple[Member, ...] = field(default=(), compare=False)

    @property
    def values(self) -> tuple[bytes, ...]:
        """What the members publish, in the order in which they joined."""
        return tuple(member.value for member in self.members)


class _BaseGroup(QueueRecipe, Generic[M, P]):
    """What sync and async groups share."""

    _membership_kind: ClassVar[type[Membership | AsyncMembership]]
    _presence_kind: ClassVar[type[Presence | AsyncPresence]]

    def __init__(self, access: Access, name: str, label: str | None = None) -> None:
        super().__init__(access, name)
        #: What views and queues show beside host and pid, in place of the client's; None for that.
        self.label: Final = label_of(label)

    def _join(self, value: bytes) -> Steps[M]:
        """Become a member that publishes ``value``, up to 65,536 bytes; waits for nobody.

        The membership lasts until it is released, its block ends, or the session is lost, at the
        latest with the process. A client may join several times. Raises TypeError unless ``value``
        is bytes, ValueError for too many bytes, and what `Lock.acquire` raises.
        """
        ticket = yield from self._joining(check_value(value))
        try:
            return cast("M", self._membership_kind(self._access.engine, ticket))
        except BaseException:
            ticket.withdraw()  # Ctrl-C: the caller never gets the membership
            raise

    def _keep_joined(self, value: bytes) -> Steps[P]:
        """Become a member as by `join`, and again after each loss, in the background.

        It publishes the newest value and keeps its `Member` id. Each loss and each failed attempt
        is logged.
        """
        join = partial(self._joining, identity=os.urandom(IDENTITY // 2).hex())
        presence = self._presence_kind(self._access.engine, self.name, join, check_value(value))
        yield from presence._begin()
        return cast("P", presence)

    def _joining(self, value: bytes, identity: str = "") -> Steps[Ticket]:
        engine, claims = self._access.engine, {self.name: Mode.NL}
        announcement = Announcement(value, identity=identity)
        return (
            yield from acquisition(
                engine, claims, label=self.label, announcement=announcement, kind="group"
            )
        )

    def _members(self) -> Steps[tuple[Member, ...]]:
        """The members, in the order in which they joined. Raises `BackendUnavailable`."""
        return members_of((yield from self._snapshot()))

    def _observe_members(self, grace: Duration | Default) -> Begin:
        """What begins to observe who is there. It keeps the client, as every `Begin` does."""
        default = self._access.engine.settings.ttl
        seconds = default if isinstance(grace, Default) else grace_of(grace)
        return lambda news: observe_members(self._access.engine, self.name, seconds, news)


def grace_of(value: object) -> float:
    """The seconds of a grace. Raises ValueError that says what is accepted."""
    try:
        seconds = seconds_of(value)
    except ValueError as error:
        raise ValueError(f"grace of observe: {value!r} is not {error}") from None
    if not 0 <= seconds < math.inf:  # nor is NaN
        raise ValueError(f"grace of observe: {value!r} is not finite and 0 or more")
    return seconds


def view_of(list: MemberList, before: GroupView | None) -> GroupView:
    """What an observer shows of ``list`` after it has shown ``before``."""
    members = list.members
    known = {} if before is None else {member.id: member for member in before.members}
    now = {member.id for member in members}
    return GroupView(
        members,
        joined=tuple(member for member in members if member.id not in known),
        left=tuple(member for id, member in known.items() if id not in now),
        changed=tuple(
            member
            for member in members
            if member.id in known and known[member.id].value != member.value
        ),
    )


class Group(_BaseGroup[Membership, Presence]):
    """A group by name: each member publishes a value. Made by `Client`; cheap, reusable.

    As in::

        with client.group("workers").join(b"10.0.0.5:8080"):
            serve()
    """

    _membership_kind = Membership
    _presence_kind = Presence

    join = blocking(_BaseGroup[Membership, Presence]._join)
    keep_joined = blocking(_BaseGroup[Membership, Presence]._keep_joined)
    members = blocking(_BaseGroup[Membership, Presence]._members)

    def observe(self, *, grace: Duration | Default = DEFAULT) -> Observer[GroupView]:
        """An iterator of the present view of the members and of each new one.

        As in::

            for view in client.group("workers").observe():
                balancer.use(view.values)

        After this client lost its connection for a third of its ``ttl`` or longer, earlier members
        stay in the view for ``grace`` seconds, by default the ``ttl``; 0 turns this off. Missing
        ones are not ``confirmed``, and have ``left`` when the grace ends.

        Raises `Unsupported` if the backend cannot, and ValueError for a wrong ``grace``; the
        iterator raises `ClientClosed`.
        """
        return Observer(
            self._access.engine, self._observe_members(grace), view_of, "group", self.name
        )


class AsyncGroup(_BaseGroup[AsyncMembership, AsyncPresence]):
    """A group by name: each member publishes a value. Made by `AsyncClient`.

    As in::

        async with await client.group("workers").join(b"10.0.0.5:8080"):
            await serve()
    """

    _membership_kind = AsyncMembership
    _presence_kind = AsyncPresence

    join = awaiting(_BaseGroup[AsyncMembership, AsyncPresence]._join)
    keep_joined = awaiting(_BaseGroup[AsyncMembership, AsyncPresence]._keep_joined)
    members = awaiting(_BaseGroup[AsyncMembership, AsyncPresence]._members)

    def observe(self, *, grace: Duration | Default = DEFAULT) -> AsyncObserver[GroupView]:
        """An async iterator of views of the members; see `Group.observe`."""
        return AsyncObserver(
            self._access.engine, self._observe_members(grace), view_of, "group", self.name
        )
