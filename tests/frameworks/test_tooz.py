"""tooz on coordlock: locks, groups and leaders, of two processes, one of which is killed.

tooz's own tests pass, too, on etcd, ZooKeeper, Redis and local files.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import tooz
from tooz import coordination

import coordlock
from coordlock.testing.waiting import eventually

#: tooz's own tests have been run on these services; here it is enough that they are reached.
pytestmark = pytest.mark.long_on("zookeeper")

Connect = Callable[[bytes], coordination.CoordinationDriver]


@pytest.fixture
def connect(shared_url: str) -> Iterator[Connect]:
    """Starts a coordinator."""
    with ExitStack() as stack:

        def start(member: bytes) -> coordination.CoordinationDriver:
            coordinator = coordination.get_coordinator(f"coordlock+{shared_url}", member)
            coordinator.start()
            stack.callback(lambda: coordinator.stop() if coordinator.is_started else None)
            return coordinator

        yield start


def test_a_lock_is_that_of_coordlock(connect: Connect, shared_url: str) -> None:
    lock = connect(b"one").get_lock(b"report")
    with coordlock.connect(shared_url) as client:
        with lock:
            assert client.lock("report").try_acquire() is None
            assert lock.is_still_owner()
        with client.read_lock("report"):
            assert not lock.acquire(blocking=False)
            assert lock.acquire(shared=True)
        assert lock.release()
        assert not lock.release()


def test_a_holder_that_is_evicted_knows_it(connect: Connect) -> None:
    lock = connect(b"one").get_lock(b"report")
    assert lock.acquire()
    assert connect(b"two").get_lock(b"report").break_()
    assert not lock.is_still_owner()
    eventually(lambda: not lock.acquired)  # type: ignore[attr-defined]  # every driver's lock has it
    assert not lock.release()


def test_members_are_those_that_joined_and_did_not_leave(connect: Connect) -> None:
    one, two = connect(b"one"), connect(b"two")
    one.create_group(b"a/group").get()
    one.join_group(b"a/group", {"weight": 1}).get()
    two.join_group(b"a/group", {"weight": 2}).get()
    assert one.get_groups().get() == [b"a/group"]
    capabilities = two.get_members_with_capabilities(b"a/group").get()
    assert capabilities == {b"one": {"weight": 1}, b"two": {"weight": 2}}
    one.update_capabilities(b"a/group", {"weight": 3}).get()
    info = two.get_member_info(b"a/group", b"one").get()
    assert info["capabilities"] == {"weight": 3}
    assert info["updated_at"] >= info["created_at"]
    two.stop()
    assert one.get_members(b"a/group").get() == {b"one"}
    with pytest.raises(coordination.GroupNotEmpty):
        one.delete_group(b"a/group").get()
    with pytest.raises(coordination.MemberAlreadyExist):
        connect(b"one").join_group(b"a/group").get()


def test_a_session_that_ends_while_its_member_joins_is_an_error_of_tooz(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = connect(b"one"), connect(b"two")
    one.create_group(b"group").get()
    join = coordlock.Group.join

    def join_and_be_evicted(group: coordlock.Group, *given: Any) -> Any:
        membership = join(group, *given)
        client: coordlock.Client = two._client  # type: ignore[attr-defined]  # the driver's
        assert client.admin.evict_all(group.name)
        return membership

    monkeypatch.setattr(coordlock.Group, "join", join_and_be_evicted)
    with pytest.raises(tooz.ToozError, match="the session ended while b'one' joined a group"):
        one.join_group(b"group").get()
    monkeypatch.undo()
    assert two.get_members(b"group").get() == set()
    one.join_group(b"group").get()
    assert two.get_members(b"group").get() == {b"one"}


def test_one_leads_and_the_next_when_it_stands_down(connect: Connect) -> None:
    elected: list[bytes] = []

    def note(event: coordination.LeaderElected) -> None:
        elected.append(event.member_id)

    one, two = connect(b"one"), connect(b"two")
    for coordinator in (one, two):
        coordinator.watch_elected_as_leader(b"group", note)
        coordinator.run_watchers()
    assert one.get_leader(b"group").get() == b"one"
    assert one.stand_down_group_leader(b"group")
    two.run_watchers()
    one.run_watchers()
    assert two.get_leader(b"group").get() == b"two"
    assert elected == [b"one", b"two"]


KILLED = """
import sys
from tooz import coordination

coordinator = coordination.get_coordinator(sys.argv[1], b"killed")
coordinator.start()
coordinator.join_group_create(b"group")
coordinator.watch_elected_as_leader(b"group", lambda event: None)
coordinator.run_watchers()
assert coordinator.get_lock(b"report").acquire()
print("here", flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_killed_leaves_its_locks_groups_and_leads(tmp_path: Path) -> None:
    url = f"coordlock+local://{tmp_path}/tooz"
    coordinator = coordination.get_coordinator(url, b"here")
    coordinator.start()
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", KILLED, url], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        events: list[Any] = []
        coordinator.watch_leave_group(b"group", events.append)  # type: ignore[arg-type]  # no name
        coordinator.watch_elected_as_leader(b"group", events.append)  # type: ignore[arg-type]
        coordinator.run_watchers()
        lock = coordinator.get_lock(b"report")
        assert (lock.acquire(blocking=False), events) == (False, [])
        process.kill()
        assert lock.acquire(timeout=60)
        eventually(lambda: coordinator.run_watchers() or len(events) == 2)
    assert {type(event) for event in events} == {
        coordination.MemberLeftGroup,
        coordination.LeaderElected,
    }
    coordinator.stop()
