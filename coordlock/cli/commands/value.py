"""Read, change and follow values, such as a configuration.

Values are small data under keys. A KEY is an absolute path outside of the root of the locks.
Lists of keys show the data only with --data.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping

from coordlock.backend import VersionedValue
from coordlock.cli.connection import Service
from coordlock.cli.data import given, in_json, read_all, shortened, text_of
from coordlock.cli.exits import Exit, complain
from coordlock.cli.table import print_table
from coordlock.cli.text import echo, printable
from coordlock.client import Client
from coordlock.errors import VersionMismatch
from coordlock.recipes.values import ValuesView

__all__ = ["delete", "get", "ls", "set"]


def get(*, key: str, follow: bool, service: Service, as_json: bool) -> int:
    """Print the value of KEY.

    On a terminal it prints a line with control characters and bytes that are not UTF-8 escaped.
    Elsewhere it prints the data byte by byte. The exit status is 1 if there is no value.

    With --follow, the command prints a line for each version, escaped likewise. It may leave out a
    version that lasted for a moment.
    """
    with service.connected() as client:
        if follow:
            for line in _of_key(client, key, as_json=as_json):
                echo(line)
        stored = client.value(key).get()
    if as_json:
        echo(json.dumps(_document(key, stored)))
    elif stored is None:
        complain(f"nothing is kept under {key!r}")
    elif sys.stdout.isatty():
        echo(text_of(stored.data))
    else:
        sys.stdout.buffer.write(stored.data)
        sys.stdout.buffer.flush()
    return Exit.FAILED if stored is None else Exit.OK


def set(
    *,
    key: str,
    data: str | None,
    if_version: int | None,
    service: Service,
) -> int:
    """Set the value of KEY to DATA.

    It replaces the present value. Without DATA, the value is stdin, byte by byte: use this for
    secrets, because arguments show in the list of processes. An empty stdin is refused; '' as DATA
    sets an empty value.
    """
    with service.connected() as client:
        value = client.value(key)  # a wrong key is told before stdin is read
        kept = read_all("value") if data is None else given(data)
        return _written(lambda: value.set(kept, expect=if_version))


def delete(*, key: str, if_version: int | None, service: Service) -> int:
    """Delete the value of KEY.

    Does nothing if there is no value.
    """
    with service.connected() as client:
        return _written(lambda: client.value(key).delete(expect=if_version))


def _written(write: Callable[[], None]) -> int:
    try:
        write()
    except VersionMismatch as mismatch:
        complain(mismatch)
        return Exit.FAILED
    return Exit.OK


def ls(*, key: str, with_data: bool, follow: bool, service: Service, as_json: bool) -> None:
    """List the keys in FOLDER.

    Lists the keys directly in FOLDER, all at one moment: /shop/limit is in /shop, and /shop/db/host
    is in /shop/db.

    With --follow, the command prints a line for each key that is added, changed or removed. It may
    leave out a state that lasted for a moment. With --json, each line is a document with all keys.
    """
    with service.connected() as client:
        if follow:
            for line in _of_folder(client, key, with_data=with_data, as_json=as_json):
                echo(line)
        found = client.values(key).get()
    if as_json:
        echo(json.dumps(_listed(found, with_data=with_data)))
    elif found:
        print_table(
            [
                {
                    "KEY": one,
                    "VERSION": stored.version,
                    "BYTES": len(stored.data),
                    "DATA": shortened(stored.data) if with_data else None,
                }
                for one, stored in found.items()
            ],
            optional="DATA",
        )
    else:
        complain(f"nothing is kept in {key!r}")


def _of_key(client: Client, key: str, *, as_json: bool) -> Iterator[str]:
    with client.value(key).observe() as states:
        for stored in states:
            if as_json:
                yield json.dumps(_document(key, stored))
            elif stored is None:
                yield "nothing is kept"
            else:
                yield f"{stored.version}  {text_of(stored.data)}"


def _of_folder(client: Client, folder: str, *, with_data: bool, as_json: bool) -> Iterator[str]:
    values_of = client.values(folder)
    with values_of.observe() as views:
        for view in views:
            if as_json:
                values = _listed(view.values, with_data=with_data)
                yield json.dumps({"folder": values_of.folder, "values": values})
            else:
                yield "\n".join(_changes(view, with_data=with_data))


def _changes(view: ValuesView, *, with_data: bool) -> Iterator[str]:
    if not view.values:
        yield "nothing is kept"
    for key in view.removed:
        yield f"removed  {printable(key)}"
    for what, those in (("added", view.added), ("changed", view.changed)):
        for key, stored in those.items():
            data = f"  {text_of(stored.data)}" if with_data else ""
            yield f"{what:<7}  {printable(key)}  {stored.version}{data}"


def _document(key: str, stored: VersionedValue | None) -> dict[str, object]:
    """What is kept under ``key``, for JSON; at version 0 there is nothing."""
    if stored is None:
        return {"key": key, "version": 0, "data": None}
    return {"key": key, "version": stored.version, **in_json(stored.data)}


def _listed(values: Mapping[str, VersionedValue], *, with_data: bool) -> list[dict[str, object]]:
    """All of ``values``, for JSON."""
    return [
        {
            "key": key,
            "version": stored.version,
            "bytes": len(stored.data),
            **(in_json(stored.data) if with_data else {}),
        }
        for key, stored in values.items()
    ]
