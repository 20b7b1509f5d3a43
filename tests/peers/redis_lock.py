"""redis-py's `Lock` on coordlock, and a client for its suite: the suite's conftest."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pytest
import redis.lock
from redis.exceptions import LockError, LockNotOwnedError

import coordlock
from coordlock import Client, Grant, GrantState

__all__ = ["Lock", "Service", "_get_client", "r"]


class Lock:
    """What `redis.lock.Lock` offers. Its ``timeout`` is ``max_hold``; its token is the grant's."""

    def __init__(
        self,
        client: Client,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,  # nothing is polled
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,  # a grant is its holder's, whatever the thread
        raise_on_release_error: bool = True,
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.raise_on_release_error = raise_on_release_error
        self.local = SimpleNamespace(token=None)
        self.grant: Grant | None = None
        self._lock = client.lock(name, max_hold=timeout)

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: object = None,
    ) -> bool:
        if token is not None:
            raise TypeError("a fencing token is the service's")
        is_blocking = self.blocking if blocking is None else blocking
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        try:
            self.grant = self._lock.acquire(wait if is_blocking else 0)
        except coordlock.AcquireTimeout:
            return False
        self.local.token = str(self.grant.token).encode()
        return True

    def release(self) -> None:
        grant, self.grant, self.local.token = self._held("release"), None, None
        if not grant.release():
            raise LockNotOwnedError("the lock is no longer owned", self.name)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        grant = self._limited("extend")
        self._extend(grant, additional_time + (0 if replace_ttl else grant.remaining()))
        return True

    def reacquire(self) -> bool:
        self._extend(self._limited("reacquire"), None)
        return True

    def locked(self) -> bool:
        return self._lock.locked()

    def owned(self) -> bool:
        return self.grant is not None and self.grant.state is GrantState.HELD

    def __enter__(self) -> Self:
        if not self.acquire():
            raise LockError("the lock was not acquired in time", self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except LockError:
            if self.raise_on_release_error:
                raise

    def _held(self, what: str) -> Grant:
        if self.grant is None:
            raise LockError(f"cannot {what} a lock that is not held", self.name)
        return self.grant

    def _limited(self, what: str) -> Grant:
        grant = self._held(what)
        if self.timeout is None:
            raise LockError(f"cannot {what} a lock without a timeout", self.name)
        return grant

    def _extend(self, grant: Grant, seconds: float | None) -> None:
        try:
            grant.verify()
            grant.extend() if seconds is None else grant.extend(seconds)
        except coordlock.LockLost as lost:
            raise LockNotOwnedError(str(lost), self.name) from None


class Service:
    """What the suite asks of a redis client: the keys of locks, and somebody who meddles."""

    def __init__(self) -> None:
        self._client = coordlock.connect(f"memory://{id(self)}", ttl=60)
        self._other = coordlock.connect(f"memory://{id(self)}", ttl=60)
        self._locks: dict[str, Lock] = {}

    def lock(self, name: str, lock_class: type | None = None, **options: Any) -> Any:
        if lock_class is not redis.lock.Lock:
            assert lock_class is not None
            return lock_class(self, name, **options)
        self._locks[name] = lock = Lock(self._client, name, **options)
        return lock

    def get(self, name: str) -> bytes | None:
        holders = [one for one in self._client.admin.contenders(name) if one.holding]
        return str(holders[0].token).encode() if holders else None

    def set(self, name: str, value: object) -> None:
        """The key is another's from now on."""
        self._other.admin.evict_all(name)
        self._other.lock(name).acquire()

    def pttl(self, name: str) -> float:
        lock = self._locks[name]
        assert lock.grant is not None
        return -1 if lock.timeout is None else lock.grant.remaining() * 1000

    def ttl(self, name: str) -> float:
        left = self.pttl(name)
        return left if left < 0 else left / 1000

    def pexpire(self, name: str, milliseconds: float) -> bool:
        grant = self._locks[name].grant
        assert grant is not None
        grant.extend(milliseconds / 1000)
        return True

    def close(self) -> None:
        self._client.close()
        self._other.close()


@pytest.fixture
def r() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


def _get_client(cls: type, request: pytest.FixtureRequest, **options: object) -> Service:
    service = Service()
    request.addfinalizer(service.close)
    return service
