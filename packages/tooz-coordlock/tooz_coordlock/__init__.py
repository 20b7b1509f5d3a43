"""A driver for OpenStack's tooz: its locks, groups and leaders on coordlock.

tooz finds it by the scheme of a URL: ``coordlock+etcd://etcd1:2379/cinder?ttl=15s``. What follows
the plus is what `coordlock.connect` takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypedDict, TypeVar, cast
from urllib.parse import quote, unquote

from tooz import ToozError, coordination, locking, utils

import coordlock
from coordlock.errors import CoordlockError, LockLost, VersionMismatch
from coordlock.types import Membership

__all__ = ["CoordlockDriver", "CoordlockLock"]

T = TypeVar("T")

#: How far a service reaches; what isn't here spans hosts.
_REACH: Final = {"memory": 1, "local": 2}
_ACROSS: Final = (
    coordination.Characteristics.DISTRIBUTED_ACROSS_THREADS,
    coordination.Characteristics.DISTRIBUTED_ACROSS_PROCESSES,
    coordination.Characteristics.DISTRIBUTED_ACROSS_HOSTS,
)


class _Published(TypedDict):
    """What a member publishes."""

    member: bytes
    capabilities: coordination.Capabilities | None
    created_at: float
    updated_at: float


class CoordlockLock(locking.Lock):
    """A lock by name: the same as `Client.lock` of that name, or `Client.read_lock` if shared.

    Shared or not, each ``acquire`` has a grant of its own, and ``release`` releases the last one.
    """

    def __init__(self, name: bytes, client: coordlock.Client) -> None:
        super().__init__(name)
        self._client = client
        self._grants: list[coordlock.Grant] = []

    def acquire(
        self, blocking: bool | float = True, shared: bool = False, timeout: float | None = None
    ) -> bool:
        """Whether it was acquired within ``timeout`` seconds; first come, first served."""
        waits, seconds = utils.convert_blocking(cast("bool", blocking), timeout)
        make = self._client.read_lock if shared else self._client.lock
        with _translated():
            try:
                lock = make(_text(self.name))
                self._grants.append(lock.acquire(timeout=seconds if waits else 0))
            except coordlock.AcquireTimeout:
                return False
        return True

    def release(self) -> bool:
        """Whether it was held until now."""
        with _translated():
            return bool(self._grants) and self._grants.pop().release()

    def break_(self) -> bool:
        """Evict its holders, wherever they are; whether there were any."""
        with _translated():
            holders = [
                one for one in self._client.admin.contenders(_text(self.name)) if one.holding
            ]
            return sum(self._client.admin.evict(one) for one in holders) > 0

    @property
    def acquired(self) -> bool:
        """Whether it is held now; False after a loss."""
        return any(grant.remaining() > 0 for grant in self._grants)

    def is_still_owner(self) -> bool:
        """Whether the service says that it is held."""
        with _translated():
            try:
                for grant in self._grants[-1:]:
                    grant.verify()
            except LockLost:
                return False
        return bool(self._grants)


class CoordlockDriver(coordination.CoordinationDriverCachedRunWatchers):
    """Coordination by a service of coordlock. It sends its heartbeats itself.

    Members leave a group, and leaders stand down, when their client stops or loses its session.
    """

    def __init__(self, member_id: bytes, parsed_url: Any, options: dict[str, Any]) -> None:
        super().__init__(utils.to_binary(member_id), parsed_url, options)
        scheme = parsed_url.scheme.partition("+")[2]
        self._target = {
            "url": f"{scheme}://{parsed_url.netloc}{parsed_url.path}",
            **utils.collapse(options),
        }
        self.CHARACTERISTICS = (
            *_ACROSS[: _REACH.get(scheme, 3)],
            coordination.Characteristics.NON_TIMEOUT_BASED,
            coordination.Characteristics.SEQUENTIAL,
        )
        self._memberships: dict[bytes, Membership] = {}
        self._terms: dict[bytes, coordlock.Term] = {}

    def _start(self) -> None:
        with _translated():
            self._client = coordlock.connect(self._target)
        self._groups = f"/tooz-groups{self._client.settings.root.rstrip('/')}"

    def _stop(self) -> None:
        self._memberships.clear()
        self._terms.clear()
        self._client.close()

    def get_lock(self, name: bytes) -> CoordlockLock:
        """The lock ``name``."""
        return CoordlockLock(name, self._client)

    # Groups. Each is a key, because a group may be empty; and a coordlock group of its members.

    def create_group(self, group_id: bytes) -> coordination.CoordAsyncResult[None]:
        """Make an empty group."""

        def create() -> None:
            try:
                self._key(group_id).set(b"", expect=0)
            except VersionMismatch:
                raise coordination.GroupAlreadyExist(group_id) from None

        return _result(create)

    def get_groups(self) -> coordination.CoordAsyncResult[list[bytes]]:
        """The groups."""

        def get() -> list[bytes]:
            keys = self._client.values(self._groups).get()
            return [unquote(key.rpartition("/")[2]).encode() for key in keys]

        return _result(get)

    def delete_group(self, group_id: bytes) -> coordination.CoordAsyncResult[None]:
        """Delete an empty group."""

        def delete() -> None:
            if self._members(group_id):
                raise coordination.GroupNotEmpty(group_id)
            self._key(group_id).delete()
            # Who joins looks for the group after that, and this looks for who has joined: so one of
            # them sees the other.
            if self._group(group_id).members():
                self._key(group_id).set(b"")
                raise coordination.GroupNotEmpty(group_id)

        return _result(delete)

    def join_group(
        self, group_id: bytes, capabilities: coordination.Capabilities | None = None
    ) -> coordination.CoordAsyncResult[None]:
        """Join a group until `leave_group`, the stop, or the loss of the session."""
        group_id = utils.to_binary(group_id)

        def join() -> None:
            now = time.time()
            mine = _Published(
                member=self._member_id, capabilities=capabilities, created_at=now, updated_at=now
            )
            if self._member_id in self._members(group_id):
                raise coordination.MemberAlreadyExist(group_id, self._member_id)
            membership = self._group(group_id).join(utils.dumps(mine))
            try:
                # Of two that joined at once, the first one stays.
                present = self._members(group_id)
                if self._member_id not in present:
                    raise ToozError(f"the session ended while {self._member_id!r} joined a group")
                if present[self._member_id][0] != membership.token:
                    raise coordination.MemberAlreadyExist(group_id, self._member_id)
            except BaseException:
                membership.release()
                raise
            self._memberships[group_id] = membership
            self._joined_groups.add(group_id)

        return _result(join)

    def leave_group(self, group_id: bytes) -> coordination.CoordAsyncResult[None]:
        """Leave a group, also for another process that joined it with the same id."""
        group_id = utils.to_binary(group_id)

        def leave() -> None:
            membership = self._memberships.pop(group_id, None)
            self._joined_groups.discard(group_id)
            if membership is not None and membership.release():
                return
            # Another process may have joined with the same id.
            queue = self._client.admin.contenders(self._group(group_id).name)
            others = [one for one in queue if self._is_mine(one.value)]
            if sum(self._client.admin.evict(one) for one in others) == 0:
                raise coordination.MemberNotJoined(group_id, self._member_id)

        return _result(leave)

    def get_members(self, group_id: bytes) -> coordination.CoordAsyncResult[set[bytes]]:
        """The ids of the members."""
        return _result(lambda: set(self._members(group_id)))

    def get_member_capabilities(
        self, group_id: bytes, member_id: bytes
    ) -> coordination.CoordAsyncResult[coordination.Capabilities | None]:
        """What a member has published."""
        return _result(lambda: self._member(group_id, member_id)["capabilities"])

    def get_members_with_capabilities(
        self, group_id: bytes
    ) -> coordination.CoordAsyncResult[dict[bytes, coordination.Capabilities | None]]:
        """What each member has published, by one request."""
        return _result(
            lambda: {
                member: published["capabilities"]
                for member, (_, published) in self._members(group_id).items()
            }
        )

    def get_member_info(
        self, group_id: bytes, member_id: bytes
    ) -> coordination.CoordAsyncResult[dict[str, Any]]:
        """What a member has published, and when it joined and published last by its own clock."""

        def get() -> dict[str, Any]:
            found = self._member(group_id, member_id)
            return {
                "capabilities": found["capabilities"],
                "created_at": datetime.fromtimestamp(found["created_at"], UTC),
                "updated_at": datetime.fromtimestamp(found["updated_at"], UTC),
            }

        return _result(get)

    def update_capabilities(
        self, group_id: bytes, capabilities: coordination.Capabilities | None
    ) -> coordination.CoordAsyncResult[None]:
        """Publish ``capabilities`` in place of those before."""
        group_id = utils.to_binary(group_id)

        def update() -> None:
            if (membership := self._memberships.get(group_id)) is None:
                raise coordination.MemberNotJoined(group_id, self._member_id)
            published: _Published = utils.loads(membership.value)
            published |= {"capabilities": capabilities, "updated_at": time.time()}
            try:
                membership.publish(utils.dumps(published))
            except LockLost:
                raise coordination.MemberNotJoined(group_id, self._member_id) from None

        return _result(update)

    # Leaders: a coordlock election for each group, in which those campaign that watch it.

    def run_elect_coordinator(self) -> None:
        """Try to become the leader of each group that is watched for that."""
        for group_id, hooks in list(self._hooks_elected_leader.items()):
            term = self._terms.get(group_id)
            if term is not None and term.remaining() > 0:
                continue
            with _translated():
                try:
                    self._terms[group_id] = self._election(group_id).campaign(timeout=0)
                except coordlock.AcquireTimeout:
                    continue
            hooks.run(coordination.LeaderElected(group_id, self._member_id))

    def run_watchers(self, timeout: float | None = None) -> list[Any]:
        """Call the hooks for what has changed, and campaign."""
        results = super().run_watchers(timeout)
        self.run_elect_coordinator()
        return results

    def stand_down_group_leader(self, group_id: bytes) -> bool:
        """Resign; whether this one led until now."""
        term = self._terms.pop(group_id, None)
        with _translated():
            return term is not None and term.resign()

    def get_leader(self, group_id: bytes) -> coordination.CoordAsyncResult[bytes]:
        """The id of the leader, or None."""

        def get() -> bytes:
            leader = self._election(group_id).leader()
            return cast("bytes", None if leader is None else leader.value)

        return _result(get)

    def _key(self, group_id: bytes) -> coordlock.Value:
        return self._client.value(f"{self._groups}/{quote(_text(group_id), safe='')}")

    def _group(self, group_id: bytes) -> coordlock.Group:
        return self._client.group(f"tooz/group/{_text(group_id)}")

    def _election(self, group_id: bytes) -> coordlock.Election:
        return self._client.election(f"tooz/leader/{_text(group_id)}", self._member_id)

    def _members(self, group_id: bytes) -> dict[bytes, tuple[int | None, _Published]]:
        """The first token of each member, and what it publishes. Raises ``GroupNotCreated``."""
        members = self._group(group_id).members()
        if self._key(group_id).get() is None:
            raise coordination.GroupNotCreated(group_id)
        found: dict[bytes, tuple[int | None, _Published]] = {}
        for one in members:
            published: _Published = utils.loads(one.value)
            found.setdefault(published["member"], (one.token, published))
        return found

    def _is_mine(self, value: bytes | None) -> bool:
        return value is not None and utils.loads(value)["member"] == self._member_id

    def _member(self, group_id: bytes, member_id: bytes) -> _Published:
        try:
            return self._members(group_id)[utils.to_binary(member_id)][1]
        except KeyError:
            raise coordination.MemberNotJoined(group_id, member_id) from None


@contextmanager
def _translated() -> Iterator[None]:
    """Raise what tooz raises."""
    try:
        yield
    except coordlock.BackendUnavailable as error:
        raise coordination.ToozConnectionError(str(error), cause=error) from error
    except CoordlockError as error:
        raise ToozError(str(error), cause=error) from error


def _result(action: Callable[[], T]) -> coordination.CoordAsyncResult[T]:
    """The result of ``action``, which is done now: later calls are to see what it did."""
    future: Future[T] = Future()
    try:
        with _translated():
            future.set_result(action())
    except ToozError as error:
        future.set_exception(error)
    return coordination.CoordinatorResult(future)


def _text(name: bytes) -> str:
    return utils.to_binary(name).decode()
