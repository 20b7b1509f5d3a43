"""Writing to the coordination service itself: several keys at once, under conditions.

Where a grant guards it, the service makes a transaction only while its contender is in its queue,
in one step with that check. Every conflicting contender waits until this one has left. So of the
writes to a key, each guarded by a grant of one lock, none comes after a later holder's: this is the
use of etcd's locks that Jepsen's analysis found safe (https://jepsen.io/analyses/etcd-3.4.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Self

from coordlock.backend import Delete, Expect, Operation, Put
from coordlock.errors import InvalidName
from coordlock.kernel.engine import Engine
from coordlock.model.names import escape
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.runtime.guards import Resident

__all__ = [
    "AsyncTransaction",
    "Transaction",
    "check_data",
    "check_key",
    "check_version",
    "root_of",
]

#: In UTF-8. Every service takes more; no application should need it.
_MAX_KEY_BYTES: Final = 1024
#: ZooKeeper allows no control characters, and nothing beyond UCS-2 or private in it. Surrogates
#: alone cannot be encoded at all.
_REFUSED: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


def check_key(key: str, root: str, queues: Iterable[str]) -> str:
    """Return ``key`` if all services can keep it and it is no place for contenders; else raise.

    Every key below the root counts as a contender. If the root is the top, that would be all keys:
    then only the grant's own ``queues`` and coordlock's own data are refused, and the caller must
    not write below the queues of other locks. Raises `InvalidName`.
    """
    if not isinstance(key, str):
        raise InvalidName(repr(key), f"must be a str, not {type(key).__name__}", "key")
    if not key.startswith("/"):
        raise InvalidName(key, "must be an absolute path, such as '/app/config'", "key")
    parts = key.split("/")[1:]
    if not all(parts) or any(part in (".", "..") for part in parts):
        raise InvalidName(key, "must not have empty parts, '.' or '..' in it", "key")
    if _REFUSED.search(key):
        raise InvalidName(key, "has characters that ZooKeeper does not allow in paths", "key")
    if len(key.encode()) > _MAX_KEY_BYTES:
        raise InvalidName(key[:40] + "…", f"is longer than {_MAX_KEY_BYTES} bytes in UTF-8", "key")
    if parts[0] == "zookeeper":
        raise InvalidName(key, "lies under '/zookeeper', which belongs to ZooKeeper itself", "key")
    at_top = root in ("/", "")
    places = (f"/{escape(queue)}" for queue in queues) if root == "/" else (root,) if root else ()
    for refused in places:
        if (key + "/").startswith(refused + "/"):
            problem = f"lies under {refused!r}, where every key is a contender for a lock"
            raise InvalidName(key, problem, "key")
    if at_top and key.startswith("/@"):
        raise InvalidName(key, "starts with '/@', which is for coordlock itself", "key")
    return key


def root_of(engine: Engine) -> str:
    """The ``root`` for `check_key`; empty where queues and data have no keys in common."""
    return engine.settings.root if engine.backend.shares_keys else ""


def check_data(data: object) -> bytes:
    """``data``, which a key is to hold. Raises TypeError for what is not bytes."""
    if not isinstance(data, bytes):
        hint = ": encode it" if isinstance(data, str) else ""
        raise TypeError(f"data must be bytes, not {type(data).__name__}{hint}")
    return data


def check_version(version: object) -> int:
    """``version``, which a key must have; 0 for no key. Raises ValueError for anything else."""
    if type(version) is not int or not 0 <= version < 2**63:
        raise ValueError(f"version must be an integer from 0 to 2**63 - 1, not {version!r}")
    return version


class _BaseTransaction(Resident):
    """What sync and async transactions share."""

    _instead = "make another one with its grant or client"

    def __init__(
        self,
        root: str,
        queues: Sequence[str],
        send: Callable[[Sequence[Operation]], Steps[None]],
    ) -> None:
        self._root: Final = root
        self._queues: Final = queues
        self._send: Final = send
        self._operations: list[Operation] = []
        self._taken = False

    def put(self, key: str, data: bytes) -> Self:
        """Write ``data`` to ``key``, an absolute path; creates the key if there is none.

        Raises `InvalidName`, also for a key that this transaction already writes.
        """
        return self._add(Put(self._unwritten(key), check_data(data)))

    def delete(self, key: str) -> Self:
        """Remove ``key``; does nothing if there is none. Raises `InvalidName`."""
        return self._add(Delete(self._unwritten(key)))

    def expect(self, key: str, version: int) -> Self:
        """Make the transaction fail unless ``key`` is at ``version``; 0 if it must not exist.

        A grant guards against past holders of its lock; this guards against writers without the
        lock. If every transaction expects the versions that it read, and none deletes, it also
        guards against an unanswered commit that takes effect late. Raises `InvalidName`.
        """
        key = check_key(key, self._root, self._queues)
        return self._add(Expect(key, check_version(version)))

    def _unwritten(self, key: str) -> str:
        check_key(key, self._root, self._queues)
        if any(
            operation.key == key
            for operation in self._operations
            if not isinstance(operation, Expect)
        ):
            raise InvalidName(key, "is written twice in one transaction", "key")
        return key

    def _commit(self) -> Steps[None]:
        """Make the writes, all at once. Without writes, it proves that the grant is held.

        Raises `LockLost` when its grant has ended, `VersionMismatch`, and `BackendError` if the
        service refuses, for instance too much data: then nothing was written. Raises
        `BackendUnavailable` when no answer came within the client's ``request_timeout``: the writes
        may have been made, or may be later, as long as the grant lives. So release the grant,
        acquire again and read. The same goes for a call that Ctrl-C or a cancellation ended. A
        second call raises RuntimeError.
        """
        if self._taken:
            # Its answer may have been lost: then it would perhaps be made twice.
            raise RuntimeError("this transaction was committed already; make another one")
        self._taken = True
        yield from self._send(tuple(self._operations))

    def _add(self, operation: Operation) -> Self:
        self._operations.append(operation)
        return self


class Transaction(_BaseTransaction):
    """Writes that the service makes all at once, or none of them.

    It makes the writes of a grant's transaction only while the grant lives.
    """

    commit = blocking(_BaseTransaction._commit)


class AsyncTransaction(_BaseTransaction):
    """Writes that the service makes all at once, or none of them.

    It makes the writes of a grant's transaction only while the grant lives.
    """

    commit = awaiting(_BaseTransaction._commit)
