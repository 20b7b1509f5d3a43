"""Data: a hash for the values of a folder, and one for their versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hiredis import Reader

from coordlock.backend import Expect, Listing, Operation, Put, Read, VersionedValue, Written
from coordlock.errors import VersionMismatch
from coordlock.model.contender import Contender
from coordlock_redis.contenders import names
from coordlock_redis.requests import MICROSECONDS, Argument, Request, decoded

__all__ = ["changed", "channel", "read", "write"]

#: Of a folder with more values, to read it once after many changes takes less.
_MAX_COPIED: Final = 1000


def channel(where: str) -> str:
    """The channel on which changes of a key or a folder are published."""
    folder, key = _split(where)
    return f"key:{folder}{key}" if key else f"folder:{folder}"


def changed(channel: bytes, message: bytes, known: Any) -> Any:
    """What is kept there after the change that ``message`` reports; ``known`` was before.

    None if it is to be read.
    """
    text, _, changes = message.partition(b" ")
    try:
        if (revision := int(text)) <= known.revision:
            return known  # a reading has shown it
        if not changes or len(known.values) > _MAX_COPIED:
            return None
        folder, _ = _split(decoded(channel.partition(b"}:")[2].partition(b":")[2]))
        reader = Reader(protocolError=ValueError)
        reader.feed(changes)
        words = list(iter(reader.gets, False))
        values = dict(known.values)
        for name, version, value in zip(words[::3], words[1::3], words[2::3], strict=True):
            key = folder + decoded(name)
            before = values.pop(key, None)
            if version != b"0":
                if int(version) != (before.version if before is not None else 0) + 1:
                    return None  # this is not what was read
                values[key] = VersionedValue(value, int(version))
    except (ValueError, TypeError, AttributeError):
        return None  # no message of coordlock's
    return Listing({key: values[key] for key in sorted(values)}, revision)


def read(where: str, guard: Contender | None) -> Request[Listing]:
    """See `Backend.read`."""
    folder, key = _split(where)
    arguments: list[Argument] = [folder, key]
    if guard is not None:
        arguments += names(guard)

    def listing(answer: list[Any]) -> Listing:
        _, revision, values, versions = answer
        numbers = {name: int(version) for name, version in _pairs(versions)}
        found = {
            folder + decoded(name): VersionedValue(value, numbers[name])
            for name, value in _pairs(values)
            if name in numbers
        }
        return Listing({name: found[name] for name in sorted(found)}, revision)

    return Request("read", arguments, listing)


def write(operations: Sequence[Operation], guards: Sequence[Contender]) -> Request[Written]:
    """See `Backend.write`."""
    arguments: list[Argument] = [len(guards)]
    for guard in guards:
        arguments += names(guard)
    changes = False
    for operation in operations:
        folder, key = _split(operation.key)
        if isinstance(operation, Expect):
            arguments += (b"expect", folder, key, operation.version)
        elif isinstance(operation, Read):
            arguments += (b"read", folder, key, b"")
        else:
            changes = True
            verb = b"put" if isinstance(operation, Put) else b"delete"
            value = operation.data if isinstance(operation, Put) else b""
            arguments += (verb, folder, key, value)

    def written(answer: list[Any]) -> Written:
        if answer[0] == b"version":
            unmet = decoded(answer[1])
            version = int(answer[2])
            keys = [
                expected.key
                for expected in operations
                if isinstance(expected, Expect)
                and expected.version == version
                and _split(expected.key)[1] == unmet
            ]
            raise VersionMismatch(keys[0], version)
        read = (each.key for each in operations if isinstance(each, Read))
        values = {
            key: VersionedValue(value, int(version))
            for key, (value, version) in zip(read, answer[3], strict=True)
            if version
        }
        return Written(answer[1], answer[2] / MICROSECONDS if changes else None, values)

    return Request("write", arguments, written, changes=changes)


def _split(where: str) -> tuple[str, str]:
    folder, slash, key = where.rpartition("/")
    return folder + slash, key


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
