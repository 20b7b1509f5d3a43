"""ZooKeeper's own record: the transaction logs of its members, read after quiescence."""

from __future__ import annotations

import logging
import re
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from coordlock_faults.events import ContenderAppeared, ContenderDisappeared
from coordlock_faults.journal import Journal
from coordlock_zookeeper.nodes import contender, sequence_of, session_name
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from coordlock.model.names import unescape
from coordlock.testing.waiting import eventually
from testbed.servers.zookeeper import ExternalZooKeeper, ZooKeeper, ZooKeeperServer, children
from testbed.truth import observer
from testbed.truth.claims import at_first
from testbed.truth.observer import Observer, TruthIncomplete
from testbed.truth.zookeeper_log import Change, Transaction, read_logs

__all__ = ["ZooKeeperObserver"]

log = logging.getLogger("testbed")

#: Contenders that come and go may be seen at one member alone, but not so often.
_LOOKS: Final = 3
#: Seconds between two looks at how far a node has come.
_INTERVAL: Final = 0.2
_EPOCH: Final = 1 << 32

_Event = ContenderAppeared | ContenderDisappeared


class ZooKeeperObserver(Observer):
    """Reads what a majority has logged, which is what was committed.

    A transaction is committed when a majority has logged it. One that was not can be in the log of
    a member that was killed, until that is cut back; but what a majority has logged no later leader
    can be without. A member that got a snapshot has a gap in its log; then the others have it. No
    log loses anything here, where processes are killed and not machines. Numbers without a gap show
    that nothing is missing.

    The logs tell no times that compare with those of clients. So meanwhile it is asked again and
    again which transaction was the last one that a member has applied, which it does when it is
    committed: all up to that one had happened by then.
    """

    def __init__(self, nodes: Sequence[ZooKeeperServer], root: str, journal: Journal) -> None:
        super().__init__(root, journal)
        self._nodes = nodes
        hosts = ",".join(node.endpoint.hosts[0] for node in nodes)
        self._zookeeper = ExternalZooKeeper(f"zookeeper://{hosts}")
        self._began = 0
        #: What the logs told when they were last read.
        self._events: list[_Event] = []
        #: Transactions that were the last one at some moment, and that moment; both ascending.
        self._zxids: list[int] = []
        self._times: list[int] = []
        self._closed = threading.Event()
        self._lock = threading.Lock()
        # One for each node: one that is paused answers late, and the others don't wait for it.
        self._threads = [
            threading.Thread(target=self._follow, args=(node,), name="zookeeper-truth", daemon=True)
            for node in nodes
        ]

    def start(self) -> None:
        self._began = self._current()
        for thread in self._threads:
            thread.start()

    def seen(self) -> int:
        return self._zxids[-1] if self._zxids else 0

    def agreed(self) -> int:
        last = 0
        differences: set[str] = set()

        def agrees() -> bool:
            nonlocal last, differences
            last = self._current()
            self._events = list(self._lives(self._committed(last)))
            there: set[str] = set()
            for event in self._events:
                (there.add if isinstance(event, ContenderAppeared) else there.discard)(event.key)
            differences = there ^ self._contenders()
            return not differences

        try:
            eventually(agrees, within=observer.AGREEMENT)
        except TimeoutError:
            what = f"ZooKeeper and its logs differ at {last:#x}: {sorted(differences)}"
            raise TruthIncomplete(what, map(_lock, differences)) from None
        return last

    def log_events(self) -> None:
        for event in self._events:
            self._journal.write(event)

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def contradictions(self) -> dict[str, str]:
        """See `Observer`. What a majority has logged was lost, or members differ for good."""
        return self._divergences() | self._given_again()

    def _given_again(self) -> dict[str, str]:
        """By locks, contenders whose sequence was given out before, in a queue not removed since.

        A majority has logged what was given out before; so it was lost.
        """
        found: dict[str, str] = {}
        newest: dict[str, int] = {}
        logged = self._logged()
        for zxid, one in sorted(self._logged(by=1).items()):
            for change in one.changes:
                queue, _, child = change.path.rpartition("/")
                if change.kind == "delete":
                    newest.pop(change.path, None)  # whoever has logged it
                elif zxid in logged and self._is_contender(change.path):
                    sequence = sequence_of(child)
                    assert sequence is not None
                    if sequence <= newest.get(queue, -1):
                        what = f"{change.path} of {zxid:#x}: its sequence was given out before"
                        found.setdefault(_lock(change.path), what)
                    newest[queue] = sequence
        return found

    def _divergences(self) -> dict[str, str]:
        """By locks, contenders that some members show and others don't, and not for a moment."""
        shown: dict[str, set[str]] = {}
        looks: list[set[str]] = []

        def agree() -> bool:
            for node in self._nodes:
                shown[node.endpoint.hosts[0]] = self._contenders(node)
            everything: set[str] = set().union(*shown.values())
            looks.append({path for paths in shown.values() for path in everything - paths})
            return not set.intersection(*looks)

        try:
            eventually(agree, within=observer.AGREEMENT)
        except TimeoutError:
            if len(looks) < _LOOKS:
                return {}
        except (KazooException, KazooTimeoutError) as error:
            log.warning("the members of ZooKeeper cannot be compared: %s", error)
            return {}
        found = {}
        for path in sorted(set.intersection(*looks)):
            members = sorted(member for member, paths in shown.items() if path in paths)
            found[_lock(path)] = f"{path} is there for {', '.join(members)} alone"
        return found

    def _current(self) -> int:
        """A transaction that is made now."""
        with self._zookeeper.kazoo() as client:
            _, stat = client.create("/truth-", ephemeral=True, sequence=True, include_data=True)
            return int(stat.czxid)

    def _contenders(self, member: ZooKeeper | None = None) -> set[str]:
        """The contenders that are there, as ``member`` or any of them shows it."""
        found: set[str] = set()
        with (member or self._zookeeper).kazoo() as client:
            client.sync("/")
            for queue in children(client, self._root):
                parent = f"{self._root}/{queue}"
                there = children(client, parent)
                found.update(f"{parent}/{one}" for one in there if sequence_of(one) is not None)
        return found

    def _logged(self, by: int | None = None) -> dict[int, Transaction]:
        """All transactions since the start that so many members have logged; else a majority."""
        enough = by or len(self._nodes) // 2 + 1
        logs = [read_logs(node.data, self._began) for node in self._nodes]
        copies = Counter(zxid for log in logs for zxid in log)
        return {zxid: one for log in logs for zxid, one in log.items() if copies[zxid] >= enough}

    def _committed(self, last: int) -> list[Transaction]:
        """All transactions since the start, up to ``last``."""
        committed: dict[int, Transaction] = {}

        def has_last() -> bool:
            committed.update(self._logged())
            return last in committed

        eventually(has_last, f"transaction {last:#x} in the logs of a majority")
        zxids = sorted(zxid for zxid in committed if zxid <= last)
        for before, zxid in zip([self._began, *zxids], zxids, strict=False):
            # Each leader counts from 1; so the last ones of the leader before are never missed.
            if zxid not in (before + 1, zxid // _EPOCH * _EPOCH + 1):
                raise TruthIncomplete(f"no log tells what came between {before:#x} and {zxid:#x}")
        return [committed[zxid] for zxid in zxids]

    def _lives(self, transactions: Sequence[Transaction]) -> Iterator[_Event]:
        """What ``transactions`` did to contenders, in order."""
        owners: dict[str, int] = {}  # of those that are there; 0 for those that outlive sessions
        for one in transactions:
            changes = list(one.changes)
            if one.closes:
                mine = (path for path, owner in owners.items() if owner == one.session)
                changes += [Change("delete", path) for path in mine]
            for change in changes:
                path = change.path
                if change.kind == "delete":
                    if owners.pop(path, None) is not None:
                        at = self._at(one.zxid)
                        yield ContenderDisappeared(at, self._journal.process, path, one.zxid)
                elif self._is_contender(path):
                    owners[path] = one.session if change.kind == "create ephemeral" else 0
                    yield self._appeared(one, path, owners[path])

    def _is_contender(self, path: str) -> bool:
        parent, _, child = path.rpartition("/")
        return parent.rpartition("/")[0] == self._root and sequence_of(child) is not None

    def _appeared(self, one: Transaction, path: str, owner: int) -> ContenderAppeared:
        parent, _, child = path.rpartition("/")
        return ContenderAppeared(
            at=self._at(one.zxid),
            process=self._journal.process,
            lock=_lock(path),
            key=path,
            token=one.zxid,
            claim=at_first(contender(parent, child).claim),
            session=session_name(owner),
            revision=one.zxid,
        )

    def _at(self, zxid: int) -> int:
        """A moment by which ``zxid`` had certainly happened."""
        place = bisect_left(self._zxids, zxid)
        return self._times[place] if place < len(self._times) else self._journal.now()

    def _follow(self, node: ZooKeeperServer) -> None:
        while not self._closed.wait(_INTERVAL):
            answer = re.search(r"\nZxid: 0x([0-9a-f]+)\n", node.four_letters("srvr"), re.MULTILINE)
            if answer is None:
                continue
            with self._lock:
                if (zxid := int(answer[1], 16)) > self.seen():
                    self._times.append(self._journal.now())
                    self._zxids.append(zxid)


def _lock(path: str) -> str:
    """The lock of the contender at ``path``."""
    queue = path.split("/")[-2]
    return unescape(queue) or queue
