"""etcd's own record: `etcdctl watch` of everything under the root, from the first revision on."""

from __future__ import annotations

import json
import subprocess
import threading
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, Final

from coordlock_etcd.keys import Layout
from coordlock_faults.events import ContenderAppeared, ContenderDisappeared
from coordlock_faults.journal import Journal

from coordlock.model.names import internal
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import EtcdServer, ExternalEtcd
from testbed.servers.guard import guarded
from testbed.truth import observer
from testbed.truth.claims import at_first
from testbed.truth.observer import Observer, TruthIncomplete

__all__ = ["EtcdObserver"]

#: How the names of work queues' own queues begin, which hold contenders as those of locks do. What
#: else begins with "@" under the root is data.
_OF_WORK_QUEUES: Final = ("@take-", "@work-")


class EtcdObserver(Observer):
    """One watch for the whole run, resumed on another member wherever it breaks.

    etcd tells a watch of all changes in the order of their revisions. So whoever has seen a
    revision has seen all before it; a key beside the root is written where that must be known.
    `etcdctl watch` asks for a member with a leader, and ends where there is none.

    Servers have lost events (etcd #15271, #17529, #19179). So in the end the contenders that should
    be there are compared with those that are, by a linearizable read; and tokens that clients had
    and the record has not are for the checkers to find.
    """

    def __init__(self, nodes: Sequence[EtcdServer], root: str, journal: Journal) -> None:
        super().__init__(root, journal)
        self._hosts = [node.endpoint.hosts[0] for node in nodes]
        self._layout = Layout.below(root)
        # No slash after the root: it is in no queue. The watch is of the root without one, too.
        self._marker = f"{root}-seen"
        self._began = 0
        self._next = 1
        self._seen = 0
        #: The contenders that are there, by key: the revisions of their creation.
        self._there: dict[str, int] = {}
        self._gap: str | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._follow, name="etcd-truth", daemon=True)

    def start(self) -> None:
        self._began = self._etcd.revision()
        self._thread.start()
        self._catch_up()

    def seen(self) -> int:
        return self._seen

    def agreed(self) -> int:
        revision = 0
        differences: dict[str, int] = {}

        def agrees() -> bool:
            nonlocal revision, differences
            revision = self._catch_up()
            recorded, found = self._there.copy(), self._read(revision)
            differences = dict(recorded.items() ^ found.items())
            return not differences

        try:
            eventually(agrees, within=observer.AGREEMENT)
        except TimeoutError:
            what = f"etcd and its watch differ at revision {revision}: {differences}"
            raise TruthIncomplete(what) from None
        return revision

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            if self._process is not None:
                self._process.kill()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def _etcd(self) -> ExternalEtcd:
        return ExternalEtcd(f"etcd://{','.join(self._hosts)}")

    def _read(self, revision: int) -> dict[str, int]:
        """The contenders at ``revision``, 0 for now, by a linearizable read."""
        prefix = self._layout.prefix.decode()
        options = ("--prefix", "--keys-only", f"--rev={revision}", "-w", "json")
        reply = json.loads(self._etcd.etcdctl("get", prefix, *options))
        found = {_key(kv): kv["create_revision"] for kv in reply.get("kvs", ())}
        return {key: created for key, created in found.items() if self._lock_of(key)}

    def _catch_up(self) -> int:
        """Wait until all is seen up to a revision that is current now; that revision."""
        reply = self._etcd.etcdctl("put", self._marker, "", "-w", "json")
        revision = int(json.loads(reply)["header"]["revision"])
        eventually(lambda: self._gap or self._seen >= revision, "the watch to catch up", within=60)
        if self._gap is not None:
            raise TruthIncomplete(self._gap)
        return revision

    # The thread.

    def _follow(self) -> None:
        while self._gap is None and not self._closed.wait(0.1):
            self._watch()
            # What breaks one member's watch may not touch the next.
            self._hosts = self._hosts[1:] + self._hosts[:1]

    def _watch(self) -> None:
        options = ("--prefix", f"--rev={self._next}", "-w", "json", "--keepalive-timeout=2s")
        with self._lock:
            if self._closed.is_set():
                return
            self._process = subprocess.Popen(
                guarded(self._etcd.etcdctl_command("watch", *options, self._root)),
                env=self._etcd.etcdctl_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        with self._process as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{") and line.endswith("\n"):  # else it was killed meanwhile
                    self._take(json.loads(line))
            process.kill()

    def _take(self, response: dict[str, Any]) -> None:
        compacted = response["CompactRevision"]
        if compacted >= self._next:
            # The root is new, so it has no history before the run began.
            if compacted > self._began:
                self._gap = f"revisions {self._next} to {compacted} were compacted away unseen"
            self._next = compacted + 1
        for event in response["Events"] or ():  # none in a notice of progress or of an end
            kv = event["kv"]
            self._log(kv, deleted=event.get("type") == 1)
            self._next = kv["mod_revision"] + 1
            self._seen = max(self._seen, kv["mod_revision"])

    def _log(self, kv: dict[str, Any], *, deleted: bool) -> None:
        key, revision = _key(kv), kv["mod_revision"]
        lock = self._lock_of(key)
        if lock is None:
            return
        if deleted:
            self._there.pop(key, None)
            self._journal.log(ContenderDisappeared, key, revision)
        elif kv["create_revision"] == revision:
            self._there[key] = revision
            queue = internal(lock[1:]) if lock.startswith(_OF_WORK_QUEUES) else lock
            claim = self._layout.contender(queue, key.encode("utf-8", "surrogateescape"))[1]
            lease = kv.get("lease", 0)
            session = f"{lease:016x}" if lease else ""
            held = at_first(claim)
            self._journal.log(ContenderAppeared, lock, key, revision, held, session, revision)

    def _lock_of(self, key: str) -> str | None:
        """The name of the lock that ``key`` contends for; None for a key that is no contender."""
        if not key.startswith(self._layout.prefix.decode()):
            return None
        queue = key.removeprefix(self._layout.prefix.decode()).partition("/")[0]
        if queue.startswith(_OF_WORK_QUEUES):
            return queue
        return self._layout.name(key.encode("utf-8", "surrogateescape"))


def _key(kv: dict[str, Any]) -> str:
    return b64decode(kv["key"]).decode("utf-8", "surrogateescape")
