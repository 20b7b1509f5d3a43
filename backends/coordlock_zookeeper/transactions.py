"""Data guarded by a contender: multis that check the contender's znode before anything else.

A multi goes through the leader and a majority, all of it or nothing. So no write of a holder comes
after its contender has gone, and none is lost that came before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from kazoo.exceptions import RolledBackError

from coordlock.backend import Delete, Expect, Operation, Put, Stored
from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    Evicted,
    SessionLost,
    VersionMismatch,
)
from coordlock.model.contender import Contender
from coordlock.runtime.driver import Steps
from coordlock_zookeeper.answers import promise_of
from coordlock_zookeeper.errors import (
    SERVICE,
    BadVersion,
    NodeExists,
    NoNode,
    NotEmpty,
    translate,
)
from coordlock_zookeeper.session import ZookeeperSession

__all__ = ["LONGEST", "GuardedData", "Step", "failure", "plan"]

# How often it is looked which nodes exist before the creations and deletions of others win.
_ATTEMPTS: Final = 8
# The longest request that a server takes, unless configured otherwise (jute.maxbuffer); it closes
# the connection on a longer one.
LONGEST: Final = 0xFFFFF


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a multi; ``expected`` is what has failed when it fails."""

    kind: Literal["check", "create", "set", "delete"]
    path: str
    data: bytes = b""
    version: int = -1
    expected: Expect | None = None


class GuardedData:
    """What a backend adds for `coordlock.transaction.Transactions`, in one session.

    ``acl`` is of the nodes made.
    """

    def __init__(self, session: ZookeeperSession, acl: Sequence[Any]) -> None:
        self._session = session
        self._client = session.client
        self._acl = acl
        #: Of the connection that certainly shows all that was seen over those before.
        self._anchored = 0

    def fetch(self, contender: Contender, key: str) -> Steps[Stored | None]:
        """See `Transactions.fetch`. One round trip, to one server.

        The two requests are answered in order, by a server whose state only goes on. So a
        contender that stands in the queue at the second stood in it at the first.

        The state is new enough. The contenders in the way were seen to be gone, by an answer or
        an event over this connection, and a server shows what came before what it has told. Over
        a later connection that holds for answers: they carry a transaction number, and a server
        that has not come that far refuses the client. But events carry none. So the first read
        over a new connection commits an empty transaction before: its answer is later than all
        that was ever told. (`sync` would not do: a leader that has lost its majority answers it
        until it finds out.)
        """
        breaks = self._session.breaks
        if breaks != self._anchored:
            yield from self.commit((contender,), ())
            self._anchored = breaks
        got = promise_of(self._client.get_async(key))
        standing = promise_of(self._client.exists_async(contender.key))
        try:
            data, stat = yield got
        except NoNode:
            found = None
        except AuthenticationFailed as error:
            raise _explained(key, error) from None
        else:
            found = Stored(data or b"", stat.version % 2**32 + 1)
        if (yield standing) is None:
            raise _evicted(contender)
        if breaks != self._session.breaks:
            raise BackendUnavailable(SERVICE, "the connection was lost meanwhile")
        return found

    def commit(self, guards: Sequence[Contender], operations: Sequence[Operation]) -> Steps[None]:
        """See `Transactions.commit`. One round trip where the keys exist.

        Sent again only after the server has said that nothing was done.
        """
        absent: set[str] = set()
        for _ in range(_ATTEMPTS):
            steps = plan([one.key for one in guards], operations, absent)
            failure = yield from self._try(steps)
            if failure is None:
                return
            number, error = failure
            step = steps[number]
            if number < len(guards) and isinstance(error, NoNode):
                raise _evicted(guards[number])
            unmet = (NodeExists,) if step.kind == "create" else (NoNode, BadVersion)
            if step.expected is not None and isinstance(error, unmet):
                raise VersionMismatch(step.expected.key, step.expected.version)
            if isinstance(error, (SessionLost, BackendUnavailable)):
                raise error  # the leader looks at the session once more
            if not isinstance(error, (NoNode, NodeExists)):
                raise _explained(step.path, error)
            # As the multi has failed at the leader and has come back, this server knows as much.
            absent = yield from self._missing(operations)
        raise BackendError(
            SERVICE, "others make and delete these keys all the time; nothing was written"
        )

    def _try(self, steps: Sequence[Step]) -> Steps[tuple[int, BackendError] | None]:
        """Send ``steps`` as one multi: which one failed, and how; None when all was done."""
        multi = self._client.transaction()
        for step in steps:
            match step.kind:
                case "check":
                    multi.check(step.path, step.version)
                case "create":
                    multi.create(step.path, step.data, acl=self._acl)
                case "set":
                    multi.set_data(step.path, step.data)
                case "delete":
                    multi.delete(step.path)
        size = sum(len(one.serialize()) + 9 for one in multi.operations)
        if size + 17 > LONGEST:
            raise BackendError(
                SERVICE,
                f"a transaction of {size} bytes is too large; servers take {LONGEST} at a time",
            )
        return failure((yield promise_of(multi.commit_async())))

    def _missing(self, operations: Sequence[Operation]) -> Steps[set[str]]:
        """The nodes that ``operations`` need and that do not exist, ancestors included."""
        keys = {one.key for one in operations}
        paths = keys.union(*map(_ancestors, keys))
        answers = [(path, promise_of(self._client.exists_async(path))) for path in paths]
        missing = set()
        for path, answer in answers:
            try:
                if (yield answer) is None:
                    missing.add(path)
            except AuthenticationFailed:
                pass  # it exists; servers from 3.9.3 on say so only to clients that may read it
        return missing


def failure(results: Sequence[Any]) -> tuple[int, BackendError] | None:
    """Which operation of a multi has failed, and how; None when all was done."""
    for number, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError):
            error = translate(result)
            assert isinstance(error, BackendError)
            return number, error
    return None


def plan(
    guards: Sequence[str], operations: Sequence[Operation], absent: Collection[str]
) -> list[Step]:
    """The multi that does ``operations`` if the nodes ``guards`` exist, or fails and does nothing.

    ZooKeeper has no operation that writes a node whether it exists or not. So this one fails, too,
    where of the other nodes not exactly those in ``absent`` are missing. Nodes above a key that is
    made are made along.

    It does one operation after the other. So those that find out come first, then parents are made
    before their children, at last children are deleted before their parents. That a node is missing
    is found out by making it, or the first that is missing above it, and deleting it again.

    Raises `BackendError` for what no order makes possible.
    """
    expected = [one for one in operations if isinstance(one, Expect)]
    puts = {one.key: one.data for one in operations if isinstance(one, Put)}
    doomed = {one.key for one in operations if isinstance(one, Delete)}
    new = {one.key: one for one in expected if one.version == 0}
    absent = {*absent, *new}
    for key in puts:
        if above := doomed.intersection(_ancestors(key)):
            raise BackendError(SERVICE, f"{above.pop()} cannot be deleted: {key} lies below it")

    steps = [Step("check", me) for me in guards]
    steps.extend(
        Step("check", one.key, version=_signed(one.version), expected=one)
        for one in expected
        if one.version
    )
    for key in sorted((doomed & absent | new.keys()) - puts.keys()):
        top = next((one for one in _ancestors(key) if one in absent), key)
        steps += [Step("create", top, expected=new.get(top)), Step("delete", top)]

    made: set[str] = set()
    for key in sorted(puts):
        if key not in absent:
            steps.append(Step("set", key, puts[key]))
            continue
        for parent in _ancestors(key):
            if parent in absent and parent not in made:
                made.add(parent)
                steps.append(Step("create", parent))
        made.add(key)
        steps.append(Step("create", key, puts[key], expected=new.get(key)))
    steps.extend(Step("delete", key) for key in sorted(doomed - absent, reverse=True))
    return steps


def _ancestors(path: str) -> list[str]:
    """The nodes above ``path``, from the top."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts))]


def _signed(version: int) -> int:
    """What ZooKeeper calls the version at which we count ``version``, from 1.

    It counts from 0 in 32 bits, signed, where -1 stands for any. No node comes that far; whatever
    is larger is taken for -2.
    """
    count = min(version - 1, 2**32 - 2)
    return count - 2**32 if count >= 2**31 else count


def _evicted(contender: Contender) -> Evicted:
    return Evicted(contender.key.rpartition("/")[0])


def _explained(path: str, error: BackendError) -> BackendError:
    """What ``error`` says of ``path``."""
    if isinstance(error, NotEmpty):
        return BackendError(SERVICE, f"{path} has children, which are keys too and must go first")
    kind = AuthenticationFailed if isinstance(error, AuthenticationFailed) else BackendError
    return kind(SERVICE, f"{path}: {error.reason}")
