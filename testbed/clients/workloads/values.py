"""values: keys of one folder are written alone and together, by versions, and observed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from coordlock_faults.events import Act, Present
from coordlock_faults.journal import Journal

import coordlock
from coordlock.backend import VersionedValue
from coordlock.errors import BackendError, VersionMismatch
from coordlock.recipes.values import ValuesView
from testbed.clients.following import State, follow, read
from testbed.clients.steps import Steps
from testbed.clients.worker import Worker
from testbed.clients.workloads.workload import Workload

__all__ = ["Values"]

#: How many keys there are.
_KEYS: Final = 4


class Values(Workload):
    """Compare-and-set of one key, and of some keys in one transaction."""

    observes = True
    keeps_data = True

    def round(self, worker: Worker) -> Steps[None]:
        folder = _folder(worker.client)
        found = yield from read(worker, "values", worker.client.values(folder).get, _state)
        if found is None:
            return
        yield from worker.pause(worker.length() / 4)
        keys = worker.dice.sample(range(_KEYS), worker.dice.randint(1, 3))
        versions = {key: _version(found, folder, key) for key in keys}
        marks = {key: worker.scribe.value() for key in keys}
        triples = tuple(number for key in keys for number in (key, versions[key], marks[key]))
        transaction = worker.client.transaction()
        for key in keys:
            path = f"{folder}/{key}"
            transaction.expect(path, versions[key]).put(path, b"%d" % marks[key])
        write: Any = transaction.commit
        if len(keys) == 1 and worker.dice.random() < 0.5:
            [key] = keys
            value = worker.client.value(f"{folder}/{key}")
            write = lambda: value.set(b"%d" % marks[key], expect=versions[key])  # noqa: E731
        log = worker.scribe.call(Act.WRITE, "values", values=triples)
        try:
            yield write
        except (BackendError, VersionMismatch) as error:
            log.raised(type(error).__name__, str(error))
        else:
            log.returned()

    def follow(self, worker: Worker) -> Steps[None]:
        # Half of them the folder.
        number = worker.dice.randrange(-_KEYS, _KEYS)
        of, observed, state = list(_observed(worker.client))[max(number, -1)]
        yield from follow(worker, of, observed.observe, observed.get, state)

    def log_final(self, url: str, journal: Journal) -> None:
        with coordlock.connect(url) as client:
            for of, observed, state in _observed(client):
                journal.log(Present, of, state(observed.get()))


def _observed(client: Any) -> Iterator[tuple[str, Any, State]]:
    """Each key, and the folder."""
    folder = _folder(client)
    for key in range(_KEYS):
        yield f"values/{key}", client.value(f"{folder}/{key}"), partial(_numbers, key)
    yield "values", client.values(folder), _state


def _folder(client: Any) -> str:
    """Beside the locks."""
    return f"{client.settings.root}-values"


def _version(found: Mapping[str, VersionedValue], folder: str, key: int) -> int:
    stored = found.get(f"{folder}/{key}")
    return 0 if stored is None else stored.version


def _state(told: ValuesView | Mapping[str, VersionedValue]) -> tuple[int, ...]:
    """Each key with its version and its mark."""
    values = told.values if isinstance(told, ValuesView) else told
    return tuple(
        number
        for path, stored in values.items()
        for number in _numbers(int(path.rpartition("/")[2]), stored)
    )


def _numbers(key: int, stored: VersionedValue | None) -> tuple[int, ...]:
    return () if stored is None else (key, stored.version, int(stored.data))
