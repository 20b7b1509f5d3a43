"""What no lock on a service can go below: its messages, and nothing around them."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from typing import Any, Final
from uuid import uuid4

import grpc
import psycopg
import redis
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import rpc
from kazoo.client import KazooClient
from psycopg.types.json import Jsonb

from bench.contestants.contestant import SERVER, Contestant, Grant

__all__ = [
    "EtcdFloor",
    "Flock",
    "PostgresqlFloor",
    "PostgresqlQueue",
    "RedisFloor",
    "ZooKeeperFloor",
]

_DELETE_RANGE: Final = rpc.Method(
    "/etcdserverpb.KV/DeleteRange", pb.DeleteRangeRequest, pb.DeleteRangeResponse
)
#: The id, at the end of the queue -> the last two.
_ENQUEUE: Final = """
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], time[1] * 1000000 + time[2], ARGV[1])
return redis.call('ZRANGE', KEYS[1], -2, -1, 'WITHSCORES')
"""
#: Remove the id and publish that.
_WITHDRAW: Final = """
redis.call('ZREM', KEYS[1], ARGV[1])
return redis.call('PUBLISH', KEYS[1], ARGV[1])
"""


class EtcdFloor(Contestant):
    """One transaction of put and range; then delete."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._channel = grpc.insecure_channel(address)
        self._txn = self._stub(rpc.TXN)
        self._delete = self._stub(_DELETE_RANGE)
        self._range = self._stub(rpc.RANGE)
        self._lease: int = self._stub(rpc.LEASE_GRANT)(pb.LeaseGrantRequest(TTL=600)).ID
        self._id = uuid4().hex  # the same each time: etcd looks at all keys that it has deleted

    def _stub(self, method: rpc.Method[Any, Any]) -> Any:
        return self._channel.unary_unary(method.path, method.encode, method.decode)

    def acquire(self, name: str) -> bytes:
        key = f"{self.root}/{name}/lock-{self._id}".encode()
        put = pb.RequestOp(request_put=pb.PutRequest(key=key, lease=self._lease))
        listed = pb.RequestOp(request_range=self._queue(name))
        self._txn(pb.TxnRequest(success=[put, listed]))
        return key

    def release(self, held: bytes) -> None:
        self._delete(pb.DeleteRangeRequest(key=held))

    def wait(self, name: str) -> float:
        """When the event came that the one contender has left: a commit and an event."""
        found = self._range(self._queue(name))
        create = pb.WatchCreateRequest(
            key=found.kvs[0].key,
            start_revision=found.header.revision + 1,
            filters=[pb.WatchCreateRequest.NOPUT],
        )
        over = threading.Event()

        def requests() -> Any:
            yield pb.WatchRequest(create_request=create)
            over.wait()

        watch = self._channel.stream_stream(rpc.WATCH.path, rpc.WATCH.encode, rpc.WATCH.decode)
        watching = watch(requests())
        next(one for one in watching if one.events)
        gone = time.monotonic()
        over.set()
        watching.cancel()
        self._held[name] = None
        return gone

    def _queue(self, name: str) -> pb.RangeRequest:
        prefix = f"{self.root}/{name}/".encode()
        return pb.RangeRequest(
            key=prefix,
            range_end=prefix[:-1] + b"0",
            limit=2,
            sort_order=pb.RangeRequest.DESCEND,
            sort_target=pb.RangeRequest.CREATE,
        )

    def close(self) -> None:
        self._channel.close()


class PostgresqlFloor(Contestant):
    """The two requests of a lock, called through psycopg, and a notification."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._connection = psycopg.connect(SERVER.format(address), autocommit=True)
        self._channel = f"floor_{uuid4().hex}"
        self._session = f"{self._channel}-1"
        self._ask("open", former=[], ttl="60 s")

    def _ask(self, verb: str, **arguments: object) -> Any:
        common = {"root": self.root, "caller": self._channel, "session": self._session}
        statement = f"CALL coordlock.request('{verb}', %s)"
        [[answer]] = self._connection.execute(statement, [Jsonb(common | arguments)])
        return answer[1]

    def _enqueue(self, name: str) -> tuple[str, Any]:
        """The id of a new contender, and those that are listed in its queue, itself the last."""
        id = uuid4().hex
        entry = {"name": name, "id": id, "claim": "lock", "owner": "", "value": "", "nearest": 1}
        [[_, listed]] = self._ask("enqueue", entries=[entry])
        return id, listed

    def acquire(self, name: str) -> str:
        return self._enqueue(name)[0]

    def release(self, held: str) -> None:
        self._ask("withdraw", contenders=[{"session": self._session, "id": held}], kept=[])

    def wait(self, name: str) -> float:
        """When the notification came: a commit, a notice and its commit."""
        self._connection.execute(f"LISTEN {self._channel}")
        self._held[name] = self.acquire(name)
        next(self._connection.notifies(stop_after=1))
        return time.monotonic()


class PostgresqlQueue(PostgresqlFloor):
    """The same, waiting in order for notifications, without all else that coordlock does."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._listening = psycopg.connect(SERVER.format(address), autocommit=True)
        self._listening.execute(f"LISTEN {self._channel}")

    def acquire(self, name: str) -> str:
        id, listed = self._enqueue(name)
        patience = 0.0  # it looks once after its own commit
        while len(listed) > 1:
            list(self._listening.notifies(timeout=patience, stop_after=1))
            [[_, listed]] = self._ask("snapshot", places=[name], upto=listed[-1][1], nearest=1)
            patience = 1.0
        return id

    def wait(self, name: str) -> float:
        return self.hold(name)

    def contend(self, name: str, begin: float, lead: float, seconds: float) -> list[Grant]:
        self._ask("heartbeat")
        return super().contend(name, begin, lead, seconds)


class RedisFloor(Contestant):
    """Two scripts, whose answers the calling thread reads, and a push."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        kind: Any = redis.Redis
        self._client = kind(host=self.host, port=int(self.port), protocol=2)
        self._scripts = [self._client.script_load(one) for one in (_ENQUEUE, _WITHDRAW)]
        self._listening = self._client.pubsub()

    def acquire(self, name: str) -> tuple[str, str]:
        held = f"{self.root}:{name}", uuid4().hex
        self._client.evalsha(self._scripts[0], 1, *held)
        return held

    def release(self, held: tuple[str, str]) -> None:
        self._client.evalsha(self._scripts[1], 1, *held)

    def wait(self, name: str) -> float:
        """When the push came that the one contender has left: a script and a push."""
        key = f"{self.root}:{name}"
        self._listening.subscribe(key)
        while (self._listening.get_message(timeout=60) or {}).get("type") != "message":
            pass
        gone = time.monotonic()
        self._listening.unsubscribe(key)
        self._held[name] = None
        return gone

    def close(self) -> None:
        self._listening.close()
        self._client.close()


class ZooKeeperFloor(Contestant):
    """Create a contender with the list pipelined behind it; then delete it."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self._client = KazooClient(hosts=address)
        self._client.start()
        self._known: set[str] = set()

    def acquire(self, name: str) -> str:
        parent = f"{self.root}/{name}"
        if parent not in self._known:
            self._client.ensure_path(parent)
            self._known.add(parent)
        created = self._client.create_async(
            f"{parent}/7f1c0a52b8e14c06a8d9__lock__", b"", ephemeral=True, sequence=True
        )
        listed = self._client.get_children_async(parent)
        path: str = created.get()
        listed.get()
        return path

    def release(self, held: str) -> None:
        self._client.delete_async(held).get()

    def wait(self, name: str) -> float:
        """When the event came that the one contender has left: a commit and an event."""
        parent, gone = f"{self.root}/{name}", threading.Event()
        (child,) = self._client.get_children(parent)
        self._client.get(f"{parent}/{child}", watch=lambda _: gone.set())
        gone.wait()
        self._held[name] = None
        return time.monotonic()

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class Flock(Contestant):
    """Open, flock(2), close: no order, no token, no name of the holder."""

    def acquire(self, name: str) -> int:
        file = os.open(os.path.join(self.address, f"{name}.flock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    def release(self, held: int) -> None:
        os.close(held)
