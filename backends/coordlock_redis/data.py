"""Data: a hash for the values of a folder, and a sorted set for their versions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from coordlock.backend import Expect, Listing, Operation, Put, Read, VersionedValue, Written
from coordlock.errors import VersionMismatch
from coordlock.model.contender import Contender
from coordlock_redis.contenders import names
from coordlock_redis.requests import MICROSECONDS, Request, Word, decoded

__all__ = ["channel", "names_in", "read", "write"]


def channel(where: str) -> str:
    """The channel on which changes of a key or a folder are published."""
    folder, key = _split(where)
    return f"key:{folder}{key}" if key else f"folder:{folder}"


def read(where: str, guard: Contender | None) -> Request[Listing]:
    """See `Backend.read`."""
    folder, key = _split(where)
    arguments: list[Word] = [folder, key]
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


def names_in(
    folder: str, first: int, ranges: Sequence[tuple[str, str]]
) -> Request[list[list[str]]]:
    """See `Backend.names`. A sorted set orders names of one version by their bytes."""

    def names(answer: list[Any]) -> list[list[str]]:
        return [[decoded(name) for name in part] for part in answer[2]]

    return Request("names", [folder, first, *chain.from_iterable(ranges)], names)


def write(operations: Sequence[Operation], guards: Sequence[Contender]) -> Request[Written]:
    """See `Backend.write`."""
    arguments: list[Word] = [len(guards)]
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
            raise VersionMismatch(decoded(answer[1]), int(answer[2]))
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
