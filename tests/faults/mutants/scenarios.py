"""Short plays in which a mistake of coordlock's would show. Without one, everything is in order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any
from unittest.mock import patch

from coordlock_faults.events import Kind, Reach
from coordlock_zookeeper import ZookeeperBackend

from coordlock.client import Client
from coordlock.locks.grant import GrantState
from coordlock.model.claim import Mode, Permit
from coordlock.runtime.promise import Promise
from coordlock.testing.connection import Connection
from coordlock.testing.waiting import eventually
from testbed.order import is_told_in_order
from testbed.servers.etcd import EtcdServer
from testbed.servers.zookeeper import ZooKeeperServer
from tests.faults.mutants.stage import PATIENCE, Player, Stage

__all__ = ["Scenario"]

Scenario = Callable[[Stage], None]


def nothing(*_: object) -> None:
    """For traps that only wait."""


def settle(condition: Callable[[], bool]) -> None:
    """Give what must not happen a moment to happen."""
    with suppress(TimeoutError):
        eventually(condition, within=0.3)


def _kazoo(player: Player) -> Any:
    """The kazoo client of a player."""
    backend = player.client._engine.backend
    assert isinstance(backend, ZookeeperBackend)
    assert backend._current is not None
    return backend._current.session.client


def a_waiter_is_evicted(stage: Stage) -> None:
    """The one in the middle of three; then the holder releases."""
    holder, evicted, last = (stage.player() for _ in range(3))
    held = holder.holding()
    waiting = evicted.asking()
    stage.queued(2)
    stage.evict(stage.queue()[1])
    stage.queued(1)
    holder.release(held)
    got = evicted.patient(waiting)
    last.release(last.holding())
    if got is not None:
        evicted.release(got)


def a_holder_is_evicted(stage: Stage) -> None:
    """It is told, though its session lives on."""
    holder, other = stage.player(), stage.player()
    held = holder.holding()
    stage.evict(stage.queue()[0])
    other.release(other.holding())
    held.told.wait(PATIENCE)


def a_holder_is_evicted_and_releases(stage: Stage) -> None:
    """Before it must have heard of that, but after somebody else was granted the lock."""
    holder, other = stage.player(), stage.player()
    held = holder.holding()
    stage.evict(stage.queue()[0])
    got = other.holding()
    holder.release(held)
    other.release(got)


def a_holder_is_cut_off(stage: Stage) -> None:
    """Until its session has expired in the service, and longer."""
    proxy = stage.proxy()
    holder, other = stage.player(proxy, ttl="2s"), stage.player()
    held = holder.holding()
    waiting = other.asking()
    stage.queued(2)
    with stage.fault():
        proxy.black_hole()
        got = waiting.result()
        held.told.wait(1.5)
        proxy.drop_connections()
        proxy.heal()
    other.release(got)


def heartbeats_find_no_leader(stage: Stage) -> None:
    """But a server that keeps the session. So only the client counts it as lost."""
    holder, other = stage.player(ttl="2s"), stage.player()
    held = holder.holding()
    waiting = other.asking()
    stage.queued(2)
    unanswered = patch.object(holder.client._engine.backend, "heartbeat", Promise[float])
    with stage.fault(), unanswered:
        held.told.wait(PATIENCE)
    other.release(other.patient(waiting))


def an_answer_to_a_heartbeat_is_late(stage: Stage) -> None:
    """It is the last one that comes."""
    # On etcd a heartbeat is given up after a third of the time-to-live. On ZooKeeper so much less
    # than the time-to-live is counted on, and after two thirds without a word kazoo hangs up.
    if isinstance(stage.server, EtcdServer):
        heartbeat, ttl, late = "LeaseKeepAlive", 5, 1.2
    else:
        heartbeat, ttl, late = "sync", 6, 2.9
    proxy = stage.proxy()
    holder, other = stage.player(proxy, ttl=f"{ttl}s", request_timeout="3s"), stage.player()
    held = holder.holding()
    waiting = other.asking()
    stage.queued(2)
    with stage.fault():
        answered = proxy.on_reply(heartbeat, nothing)
        if isinstance(stage.server, ZooKeeperServer):
            # Until the heartbeat is sent, kazoo hears answers all the time, or it would hang up
            # before this one comes.
            proxy.replies.delay(1.0)
            beaten = proxy.on_request(heartbeat, lambda *_: proxy.replies.delay(late))
            kazoo = _kazoo(holder)
            eventually(lambda: kazoo.exists_async("/") and beaten.sprung)
        else:
            proxy.replies.delay(late)
        # The service has heard of it, and will hear no more.
        answered.wait()
        proxy.requests.black_hole()
        got = waiting.result()
        held.told.wait(3)
        proxy.drop_connections()
        proxy.heal()
    other.release(got)


def a_watch_is_set_late(stage: Stage) -> None:
    """Its request arrives when the holder has released already."""
    proxy = stage.proxy()
    holder, waiter = stage.player(), stage.player(proxy)
    held = holder.holding()
    with stage.fault():
        trap = proxy.on_request("Watch", Connection.black_hole)
        waiting = waiter.asking()
        trap.wait()
        stage.queued(2)
        holder.release(held)
        stage.queued(1)
        proxy.heal()
    waiter.release(waiter.patient(waiting))


def _has_its_watches(client: Client) -> bool:
    """Whether the service is known to have what its one waiter watches."""
    engine = client._engine
    [ticket] = engine.tickets
    watched = (*ticket.contenders, *ticket.waiting.watched)
    return len(watched) > 1 and all(is_told_in_order(engine.backend, one) for one in watched)


def a_waiter_changes_its_connection(stage: Stage) -> None:
    """With its watch, before the holder releases."""
    proxy = stage.proxy()
    holder, waiter = stage.player(), stage.player(proxy)
    held = holder.holding()
    waiting = waiter.asking()
    stage.queued(2)
    eventually(lambda: _has_its_watches(waiter.client))  # else they are set after the fault
    with stage.fault():
        session = waiter.client._engine.sessions.latest
        assert session is not None
        proxy.drop_connections()
        eventually(lambda: session.suspicion)
        eventually(lambda: session.suspicion is None)
    holder.release(held)
    waiter.release(waiter.patient(waiting))


def a_release_finds_no_server(stage: Stage) -> None:
    """For a moment; its session lives on."""
    proxy = stage.proxy()
    holder = stage.player(proxy)
    held = holder.holding()
    with stage.outage(proxy):
        holder.release(held)


def a_visitor_leaves_during_an_outage(stage: Stage) -> None:
    """It was given a client of the service, whose session goes on without it."""
    proxy = stage.proxy()
    visitor, other = stage.player(given=stage.given(proxy)), stage.player()
    held = visitor.holding()
    with stage.outage(proxy):
        # It knows: else kazoo may keep what it asks for now, and ask for it after the outage.
        eventually(lambda: held.grant.state is GrantState.SUSPECT)
        visitor.leave(held)
    other.release(other.patient(other.asking()))


def a_create_arrives_late(stage: Stage) -> None:
    """When its sender has given up, and has removed what there was: nothing yet."""
    stuck, open_way = stage.proxy(), stage.proxy()
    player = stage.player(stuck, open_way)
    player.release(player.holding())
    with stage.fault():
        trap = stuck.on_request("Txn", Connection.postpone_request)
        stuck.refuse()
        open_way.refuse()
        assert player.acquire(timeout=0.5) is None
        trap.wait()
        before = open_way.counts().replies["Txn"]
        open_way.heal()
        eventually(lambda: open_way.counts().replies["Txn"] > before)
        stuck.heal()
    stage.queued(1)


def the_answer_to_a_create_is_lost(stage: Stage) -> None:
    """And others go on meanwhile."""
    proxy = stage.proxy()
    player, other = stage.player(proxy), stage.player()
    create = "Txn" if isinstance(stage.server, EtcdServer) else "create2"
    player.release(player.holding())
    with stage.fault():
        trap = proxy.on_request(create, Connection.lose_reply)
        waiting = player.asking()
        trap.wait()
        proxy.refuse()
        stage.queued(1)
        with other.client.lock("another"):
            proxy.heal()
    player.release(player.patient(waiting))


def a_session_is_lost_with_a_create(stage: Stage) -> None:
    """The answer to a create is lost, and the client opens another session before the first ends.

    So the contender of the first one is still there. It goes when that session ends.
    """
    assert isinstance(stage.server, ZooKeeperServer)
    proxy = stage.proxy()
    player, other = stage.player(proxy, ttl="2s"), stage.player()
    backend = player.client._engine.backend
    assert isinstance(backend, ZookeeperBackend)
    assert backend._current is not None
    session = backend._current.session
    with stage.fault(), ExitStack() as lingering:
        trap = proxy.on_reply("create2", lambda *_: proxy.black_hole())
        waiting = player.asking()
        trap.wait()
        stage.queued(1)
        visiting = other.visiting()
        stage.queued(2)
        # Somebody else keeps the session, for as long as it takes: the server cannot know.
        identity = session.client.client_id
        lingering.enter_context(stage.server.kazoo(client_id=identity))
        eventually(session.stopped.done, "the client to give it up")
        proxy.drop_connections()
        proxy.heal()
        eventually(lambda: waiting.done() or visiting.done())
    got = waiting.result()
    visiting.result()
    if got is not None:
        settle(got.told.is_set)
    player.release(got)


def one_in_the_middle_gives_up(stage: Stage) -> None:
    """So whoever waited for it is woken, and the holder still holds."""
    holder, middle, last = (stage.player() for _ in range(3))
    held = holder.holding()
    giving_up = middle.asking(timeout=1)
    stage.queued(2)
    waiting = last.asking()
    stage.queued(3)
    assert giving_up.result() is None
    stage.queued(2)
    settle(waiting.done)
    holder.release(held)
    last.release(waiting.result())


def a_reader_comes_under_a_writer(stage: Stage) -> None:
    """And waits."""
    writer, reader = stage.player(), stage.player()
    held = writer.holding()
    waiting = reader.asking(Mode.PR)
    stage.queued(2)
    settle(waiting.done)
    writer.release(held)
    reader.release(waiting.result())


def a_reader_comes_behind_a_writer_who_waits(stage: Stage) -> None:
    """And waits for it, though readers hold the lock."""
    first, writer, second = (stage.player() for _ in range(3))
    held = first.holding(Mode.PR)
    writing = writer.asking()
    stage.queued(2)
    reading = second.asking(Mode.PR)
    stage.queued(3)
    settle(reading.done)
    first.release(held)
    writer.release(writing.result())
    second.release(reading.result())


def a_semaphore_is_full(stage: Stage) -> None:
    """Two hold one of two, and a third waits."""
    players = [stage.player() for _ in range(3)]
    held = [player.holding(Permit(2)) for player in players[:2]]
    waiting = players[2].asking(Permit(2))
    stage.queued(3)
    settle(waiting.done)
    for player, attempt in zip(players, held, strict=False):
        player.release(attempt)
    players[2].release(waiting.result())


def the_eleventh_comes(stage: Stage) -> None:
    """To a queue that has given out the numbers 0 to 9, the last of them to the holder."""
    holder, other = stage.player(), stage.player()
    held = holder.holding()
    while not stage.queue()[0].key.endswith("9"):  # an empty queue may go, and begins at 0 again
        holder.release(held)
        held = holder.holding()
    waiting = other.asking()
    stage.queued(2)
    settle(waiting.done)
    holder.release(held)
    other.release(waiting.result())


def several_come(stage: Stage) -> None:
    """One after the other."""
    players = [stage.player() for _ in range(4)]
    held = players[0].holding()
    waiting = []
    for number, player in enumerate(players[1:], 2):
        waiting.append(player.asking())
        stage.queued(number)
    settle(lambda: any(one.done() for one in waiting))
    players[0].release(held)
    for player, one in zip(players[1:], waiting, strict=True):
        player.release(one.result())


def a_holder_of_the_past_writes(stage: Stage) -> None:
    """After a newer holder has read, and before that one writes."""
    old, new = stage.player(), stage.player()
    resource = stage.resource()
    before = old.holding()
    stage.evict(stage.queue()[0])
    after = new.holding()
    new.offer(after, resource, Kind.READ)
    old.offer(before, resource, Kind.ADD)
    new.offer(after, resource, Kind.ADD)
    new.release(after)


def a_queue_is_deleted(stage: Stage) -> None:
    """When nobody is in it; the next one makes it anew."""
    assert isinstance(stage.server, ZooKeeperServer)
    player = stage.player()
    for _ in range(2):
        player.release(player.holding())
    stage.queued(0)
    with stage.fault(reach=Reach.OPERATOR), stage.server.kazoo() as client:
        client.delete(stage.path, recursive=True)
    for _ in range(2):
        player.release(player.holding())


def the_first_of_two_leaves_a_semaphore(stage: Stage) -> None:
    """And the second stays, so that there is room for the third."""
    first, second, third = (stage.player() for _ in range(3))
    held, kept = first.holding(Permit(2)), second.holding(Permit(2))
    waiting = third.asking(Permit(2))
    stage.queued(3)
    first.release(held)
    got = third.patient(waiting)
    second.release(kept)
    third.release(got)


def a_holder_of_the_past_commits(stage: Stage) -> None:
    """To the service itself, what it makes of what it has read in time."""
    old, new = stage.player(), stage.player()
    before = old.holding()
    read = old.read(before, stage.key)
    stage.evict(stage.queue()[0])
    after = new.holding()
    new.add(after, stage.key, new.read(after, stage.key))
    old.add(before, stage.key, read)
    new.release(after)
