"""work: items are put into work queues, and taken; they are done, or given back."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

from coordlock_faults.events import Act, Present
from coordlock_faults.journal import Journal

import coordlock
from coordlock.errors import BackendUnavailable, LockLost, WorkQueueEmpty, WorkQueueFull
from coordlock.model.claim import Mode
from testbed.clients.attempt_log import AttemptLog
from testbed.clients.call_log import CallLog
from testbed.clients.steps import Steps
from testbed.clients.worker import EXPECTED, Patience, Worker
from testbed.clients.workloads.workload import Workload

__all__ = ["Work"]

#: The queues, and how often a worker puts something: one gets full, and at the other workers wait.
_PUTS: Final = {"queue0": 0.4, "queue1": 0.2}
#: How many items may wait in a queue, and how often one is taken.
_DEPTH: Final = 30
_ATTEMPTS: Final = 5
#: How often what a worker has taken is done.
_DONE: Final = 0.75
#: How often an item has a delay, whether it is put or given back.
_DELAYED: Final = 0.2
#: Seconds in which what is left can be taken: dead workers keep it for as long as their sessions.
_PATIENCE: Final = 60.0


class Work(Workload):
    """Every worker puts and takes."""

    keeps_data = True

    def round(self, worker: Worker) -> Steps[None]:
        name = worker.dice.choice(list(_PUTS))
        queue = _queue(worker.client, name)
        if worker.dice.random() < _PUTS[name]:
            for _ in range(worker.dice.randint(1, 2)):
                yield from self._put(worker, queue)
        else:
            yield from self._take(worker, queue)

    def _put(self, worker: Worker, queue: Any) -> Steps[None]:
        mark = worker.scribe.value()
        delay = _delay(worker)
        log = worker.scribe.call(Act.PUT, queue.name, values=(mark, 1 if delay else 0))
        try:
            id = yield lambda: queue.put(b"%d" % mark, delay=delay)
        except (BackendUnavailable, WorkQueueFull) as error:
            log.raised(type(error).__name__, str(error))
        else:
            log.returned(_number(id))

    def _take(self, worker: Worker, queue: Any) -> Steps[None]:
        # An item is a grant: its contender stands in the queue of those at work.
        attempt = worker.scribe.attempt(f"@work-{queue.name}", Mode.NL, actor=worker.name)
        log = worker.scribe.call(Act.TAKE, queue.name, attempt.name)

        def ask(given: Patience) -> Any:
            return queue.try_take() if given.once else queue.take(given.timeout)

        item = yield from worker.ask([attempt], ask, self._patience(worker))
        if item is None:
            log.raised("NotTaken")
            return
        attempt.granted(item)
        log.returned(*_numbers(item))
        if worker.dice.random() < 0.5:
            # The clock would tell that it is too late. Here the service alone has to.
            vars(item)["check"] = lambda: None
        yield from worker.pause(worker.length())
        yield from self._end(worker, queue.name, attempt)

    def _patience(self, worker: Worker) -> Patience:
        # Nobody waits for long: while all wait, nobody puts anything.
        given = worker.patience()
        if given.once or given.cancelled is not None:
            return given
        longest = worker.dice.uniform(0.1, 3)
        return Patience(longest if given.timeout is None else min(given.timeout, longest))

    def _end(self, worker: Worker, name: str, attempt: AttemptLog) -> Steps[None]:
        """Say that the item is done, or is to be taken again; twice, where nobody answers."""
        item: Any = attempt.grant
        end: Callable[[], Any] = item.ack
        act = Act.DONE if worker.dice.random() < _DONE else Act.NACK
        if act is Act.NACK:
            end = partial(item.nack, _delay(worker))
        if attempt.lost:
            yield from worker.until_told(attempt)
        attempt.releasing()
        held = not attempt.lost  # the service may take it all the same, where nobody looks first
        for _ in range(2):
            log = worker.scribe.call(act, name, attempt.name, (_number(item.id),))
            try:
                yield end
            except BackendUnavailable as error:
                log.raised(type(error).__name__, str(error))
            except (LockLost, RuntimeError) as error:
                log.raised(type(error).__name__, str(error))
                attempt.release_failed(error)
                return
            else:
                log.returned()
                attempt.released(held)
                return
        try:
            was_held = yield item.release
        except EXPECTED as error:
            attempt.release_failed(error)
        else:
            attempt.released(was_held)

    def log_final(self, url: str, journal: Journal) -> None:
        with coordlock.connect(url) as client:
            for name in _PUTS:
                _finish(_queue(client, name), journal)


def _finish(queue: coordlock.WorkQueue, journal: Journal) -> None:
    """Do what is left; write down what nobody is to take any more, or not yet."""
    deadline = time.monotonic() + _PATIENCE
    names = (f"{journal.process}-{queue.name}-k{number}" for number in count())
    while (left := queue.stats()).waiting + left.taken and time.monotonic() < deadline:
        log = CallLog(journal, next(names), Act.TAKE, queue.name)
        try:
            item = queue.take(1.0)
        except WorkQueueEmpty as error:
            log.raised(type(error).__name__)
            continue
        log.returned(*_numbers(item))
        log = CallLog(journal, next(names), Act.DONE, queue.name, values=(_number(item.id),))
        item.ack()
        log.returned()
    kept = (*queue.items(1000), *queue.dead(1000))
    journal.log(
        Present,
        queue.name,
        tuple(int(one.data) for one in kept if one.state in ("delayed", "dead")),
    )


def _queue(client: Any, name: str) -> Any:
    return client.work_queue(name, max_depth=_DEPTH, max_failures=_ATTEMPTS)


def _delay(worker: Worker) -> float:
    return worker.dice.random() if worker.dice.random() < _DELAYED else 0.0


def _number(id: str) -> int:
    """The number of an item; below 0 for those that were put with a delay, from -1 on."""
    return -1 - int(id[1:]) if id.startswith("d") else int(id)


def _numbers(item: Any) -> tuple[int, int, int]:
    return _number(item.id), item.deliveries, int(item.data)
