"""Writes of data: multis, which check the znodes of contenders before anything else.

A multi goes through the leader and a majority, all of it or nothing. So no write of a holder comes
after its contender has gone, and none is lost that came before.

A key is a znode that has data, which may be empty. A znode without any is none: it is there because
of keys below it. A key that has others below it is deleted by taking its data from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kazoo.exceptions import RolledBackError
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Exists,
    GetData,
    SetData,
    Transaction,
)
from kazoo.protocol.serialization import Delete as DeleteNode

from coordlock.backend import Delete, Expect, Operation, Put, Stored
from coordlock.errors import (
    AuthenticationFailed,
    BackendError,
    BackendUnavailable,
    Evicted,
    SessionLost,
    TooLarge,
    VersionMismatch,
)
from coordlock.model.contender import Contender
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise
from coordlock_zookeeper.answers import Dated, ask, full, promise_of
from coordlock_zookeeper.errors import (
    SERVICE,
    BadVersion,
    NodeExists,
    NoNode,
    NotEmpty,
    translate,
)
from coordlock_zookeeper.session import ZookeeperSession

__all__ = [
    "LONGEST",
    "GuardedData",
    "Known",
    "Step",
    "explained",
    "failure",
    "plan",
    "stored",
]

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
    data: bytes | None = None
    version: int = -1
    expected: Expect | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the nodes that a transaction concerns.

    Attributes:
        absent: those that do not exist, ancestors of keys included.
        hollow: those that exist and are no keys, with ZooKeeper's version of each.
        crowded: those that have children.
    """

    absent: Collection[str] = ()
    hollow: Mapping[str, int] = field(default_factory=dict)
    crowded: Collection[str] = ()


class GuardedData:
    """Reads and writes in one session: see `coordlock.backend.Transactions`.

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
            found = stored(*(yield got))
        except NoNode:
            found = None
        except AuthenticationFailed as error:
            raise explained(key, error) from None
        if (yield standing) is None:
            raise _evicted(contender)
        if breaks != self._session.breaks:
            raise BackendUnavailable(SERVICE, "the connection was lost meanwhile")
        return found

    def commit(self, guards: Sequence[Contender], operations: Sequence[Operation]) -> Steps[int]:
        """See `Transactions.commit` and `Data.write`; the number of the transaction.

        One round trip where the keys exist. Sent again only after the server has said that nothing
        was done.
        """
        known = Known()
        for _ in range(_ATTEMPTS):
            steps = plan([one.key for one in guards], operations, known)
            results, zxid = yield self._send(steps)
            if (failed := failure(results)) is None:
                return int(zxid)
            number, error = failed
            step = steps[number]
            if number < len(guards) and isinstance(error, NoNode):
                raise _evicted(guards[number])
            if isinstance(error, (SessionLost, BackendUnavailable)):
                raise error  # the leader looks at the session once more
            if not isinstance(error, (NoNode, NodeExists, BadVersion, NotEmpty)):
                raise explained(step.path, error)
            if step.kind == "check" and step.expected is not None:
                raise VersionMismatch(step.expected.key, step.expected.version)
            crowded = {*known.crowded, step.path} if isinstance(error, NotEmpty) else known.crowded
            # As the multi has failed at the leader and has come back, this server knows as much.
            known = yield from self._look(operations, crowded)
            if step.expected is not None and step.path not in {*known.absent, *known.hollow}:
                raise VersionMismatch(step.expected.key, step.expected.version)
        raise BackendError(
            SERVICE, "others make and delete these keys all the time; nothing was written"
        )

    def _send(self, steps: Sequence[Step]) -> Promise[Dated]:
        """Send ``steps`` as one multi."""
        request = Transaction([self._operation(step) for step in steps])
        size = len(request.serialize())
        if size + 8 > LONGEST:
            raise TooLarge(
                SERVICE,
                f"a transaction of {size} bytes is too large; servers take {LONGEST} at a time",
            )
        return ask(self._client, request)

    def _operation(self, step: Step) -> Any:
        path = full(self._client, step.path)
        match step.kind:
            case "check":
                return CheckVersion(path, step.version)
            case "create":
                return Create(path, step.data, self._acl, 0)
            case "set":
                return SetData(path, step.data, step.version)
            case "delete":
                return DeleteNode(path, step.version)

    def _look(self, operations: Sequence[Operation], crowded: Collection[str]) -> Steps[Known]:
        """What is known of the nodes that ``operations`` concern, ancestors included."""
        keys = {one.key for one in operations}
        paths = keys | _above(keys)
        stats = yield from self._ask_all([Exists(full(self._client, one), None) for one in paths])
        there = dict(zip(paths, stats, strict=True))
        absent = {path for path, stat in there.items() if stat is None}
        empty = [one for one in keys if getattr(there[one], "dataLength", None) == 0]
        values = yield from self._ask_all([GetData(full(self._client, one), None) for one in empty])
        found = [one for one in zip(empty, values, strict=True) if isinstance(one[1], tuple)]
        hollow = {path: stat.version for path, (data, stat) in found if data is None}
        return Known(absent, hollow, crowded)

    def _ask_all(self, requests: Sequence[Any]) -> Steps[list[Any]]:
        """The answers to ``requests``, or the error where the client may not read a node.

        Servers from 3.9.3 on do not even tell others whether it exists. It is taken for a key.
        """
        answers = [ask(self._client, request) for request in requests]
        values = []
        for answer in answers:
            try:
                value, _ = yield answer
            except AuthenticationFailed as error:
                value = error
            values.append(value)
        return values


def stored(data: bytes | None, stat: Any) -> Stored | None:
    """What a node holds; None if it is no key."""
    return None if data is None else Stored(data, stat.version % 2**32 + 1)


def failure(results: Sequence[Any]) -> tuple[int, BackendError] | None:
    """Which operation of a multi has failed, and how; None when all was done."""
    for number, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError):
            error = translate(result)
            assert isinstance(error, BackendError)
            return number, error
    return None


def plan(guards: Sequence[str], operations: Sequence[Operation], known: Known) -> list[Step]:
    """The multi that does ``operations`` if the nodes ``guards`` exist, or fails and does nothing.

    ZooKeeper has no operation that writes a node whether it exists or not. So this one fails, too,
    where the other nodes are not as ``known``: each other one exists, is a key and has no children.
    Nodes above a key that is made are made along.

    It does one operation after the other. So those that find out come first, then parents are made
    before their children, at last children are deleted before their parents. That a node is missing
    is found out by making it, or the first that is missing above it, and deleting it again. That a
    node is no key is found out by its version, because a write would count there.
    """
    expected = [one for one in operations if isinstance(one, Expect)]
    puts = {one.key: one.data for one in operations if isinstance(one, Put)}
    doomed = {one.key for one in operations if isinstance(one, Delete)}
    new = {one.key: one for one in expected if one.version == 0 and one.key not in known.hollow}
    absent = {*known.absent, *new}
    kept = {*known.crowded, *_above(puts)}

    steps = [Step("check", me) for me in guards]
    for one in expected:
        if one.version:
            version = _signed(one.version)
            steps.append(Step("check", one.key, version=version, expected=one))
        elif one.key in known.hollow:
            steps.append(Step("check", one.key, version=known.hollow[one.key]))
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
    for key in sorted(doomed - absent, reverse=True):
        steps.append(Step("set" if key in kept else "delete", key))
    return steps


def _above(keys: Collection[str]) -> set[str]:
    """The nodes above all of ``keys``."""
    return set[str]().union(*map(_ancestors, keys))


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


def explained(path: str, error: BackendError) -> BackendError:
    """What ``error`` says of ``path``."""
    kind = AuthenticationFailed if isinstance(error, AuthenticationFailed) else BackendError
    return kind(SERVICE, f"{path}: {error.reason}")
