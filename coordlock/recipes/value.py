"""Values: small data that all clients of the service share, without a lock.

A key counts its writes, and begins anew when it was deleted. So a write that expects a version
excludes all that came between, as long as nobody deletes the key meanwhile.

A write whose answer was lost is neither repeated nor looked for. To repeat it could undo what
another client has written since, and to find the same data proves nothing: another client may have
written that. So the caller gets an error, and decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from coordlock.backend import Delete, Expect, Listing, Observation, Operation, Put, VersionedValue
from coordlock.errors import VersionMismatch
from coordlock.kernel.access import Access
from coordlock.recipes.shared.observer import AsyncObserver, Observer
from coordlock.records.transaction import check_data, check_key, check_version, root_of
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.runtime.guards import PlainFunction, Resident

__all__ = ["AsyncValue", "BaseData", "Value", "send"]

_CHANGE: Final = PlainFunction(
    "change must be a function of the value",
    "which is no value",
    "give a plain function: it may be called several times, and must not wait",
    "give a plain function",
)


def send(access: Access, operations: list[Operation] | tuple[Operation, ...]) -> Steps[None]:
    """Make ``operations`` all at once, where there are any. Raises what `Backend.write` does."""
    engine = access.engine
    engine.backend.require("data")
    if operations:
        yield from engine.send(lambda: engine.backend.write(operations), "the write")


class BaseData(Resident):
    """What values and folders of them share."""

    _instead = "pass its key or folder instead, and make another object with a client there"
    #: The key, or the folder with a slash at its end.
    _where: str

    def __init__(self, access: Access, path: str) -> None:
        engine = access.engine
        engine.backend.require("data")
        self._access: Final = access
        self._path: Final = check_key(path, root_of(engine), ())

    def _listing(self) -> Steps[Listing]:
        engine = self._access.engine
        return (yield from engine.ask(lambda: engine.backend.read(self._where)))

    def _begin(self, news: Callable[[], None]) -> Observation[Listing]:
        return self._access.engine.backend.follow(self._where, news)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._where!r} at {self._access.settings}>"


class _BaseValue(BaseData):
    """What sync and async values share."""

    def __init__(self, access: Access, key: str) -> None:
        super().__init__(access, key)
        self._where = self._path
        #: An absolute path.
        self.key: Final = self._path

    def _get(self) -> Steps[VersionedValue | None]:
        """The value; None for none. It includes every write acknowledged before the call.

        Raises `BackendUnavailable`.
        """
        return self._shown((yield from self._listing()), None)

    def _set(self, data: bytes, *, expect: int | None = None) -> Steps[None]:
        """Set the value to ``data``.

        With ``expect``, only if that is the present version, 0 for no value; the new version is one
        more. Raises `VersionMismatch` otherwise, and `BackendError` if the service refuses, for
        instance too much data: then nothing was written. Raises `BackendUnavailable` when no answer
        came within the client's ``request_timeout``: then, as when Ctrl-C or a cancellation ends
        the call, the data may have been written, or may be later.
        """
        yield from self._write(Put(self.key, check_data(data)), expect)

    def _delete(self, *, expect: int | None = None) -> Steps[None]:
        """Delete the value; the next version is 1. The rest is as for `set`."""
        yield from self._write(Delete(self.key), expect)

    def _update(
        self, change: Callable[[bytes | None], bytes | None]
    ) -> Steps[VersionedValue | None]:
        """Set the value to what ``change`` returns for it, None for none; returns the new value.

        It calls ``change`` again whenever another client wrote meanwhile, so no update is lost
        unless the key is deleted meanwhile. ``change`` may return its argument, and must have no
        other effects. Raises what `set` does, and what ``change`` raises.
        """
        _CHANGE.check(change)
        while True:
            found = yield from self._get()
            before = None if found is None else found.data
            wanted = _CHANGE.finished(change, change(before))
            if wanted is not None:
                check_data(wanted)
            if wanted == before:
                return found
            version = 0 if found is None else found.version
            write = Delete(self.key) if wanted is None else Put(self.key, wanted)
            try:
                yield from self._write(write, version)
            except VersionMismatch:
                continue
            return None if wanted is None else VersionedValue(wanted, version + 1)

    def _write(self, write: Put | Delete, expect: int | None) -> Steps[None]:
        conditions = [] if expect is None else [Expect(self.key, check_version(expect))]
        yield from send(self._access, [*conditions, write])

    def _shown(self, listing: Listing, before: VersionedValue | None) -> VersionedValue | None:
        return listing.values.get(self.key)


class Value(_BaseValue):
    """Small data under a key, shared by all clients of the service. Made by `Client`; reusable.

    As in::

        limit = client.value("/app/limit")
        limit.set(b"10")
        limit.update(lambda data: b"%d" % (int(data or b"0") + 1))
    """

    get = blocking(_BaseValue._get)
    set = blocking(_BaseValue._set)
    delete = blocking(_BaseValue._delete)
    update = blocking(_BaseValue._update)

    def observe(self) -> Observer[VersionedValue | None]:
        """An iterator of the value now and of each new one; None for no value.

        It is also a cache: ``state`` is the newest value, without asking the service, and
        ``stale_for`` says for how long changes may have been missed. The iterator raises
        `ClientClosed`.
        """
        return Observer(self._access.engine, self._begin, self._shown, "value", self.key)


class AsyncValue(_BaseValue):
    """Small data under a key, shared by all clients of the service. Made by `AsyncClient`."""

    get = awaiting(_BaseValue._get)
    set = awaiting(_BaseValue._set)
    delete = awaiting(_BaseValue._delete)
    update = awaiting(_BaseValue._update)

    def observe(self) -> AsyncObserver[VersionedValue | None]:
        """An async iterator of the value; see `Value.observe`."""
        return AsyncObserver(self._access.engine, self._begin, self._shown, "value", self.key)
