"""``coordlock queue work``: a command for each item of a work queue, several at a time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from coordlock.cli.child import Child, CommandFailed, Unguarded
from coordlock.cli.completion import complete_work_queue, completed_by
from coordlock.cli.exits import Exit, killed_by
from coordlock.cli.guard import Guard
from coordlock.cli.lock_request import LockRequest, show_log
from coordlock.cli.options import (
    grace_option,
    grant_options,
    seconds,
    waiting_options,
    zero_is_done_option,
)
from coordlock.cli.parser import Parser, Refused, whole
from coordlock.cli.signals import ENDING, Interrupted
from coordlock.cli.supervision import Limits
from coordlock.errors import BackendUnavailable, LockLost
from coordlock.runtime.cancellation import Cancellation
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.work.item import LONGEST_DELAY, Item
from coordlock.work.running import Running

__all__ = ["parser"]

#: Seconds between two looks at how long an item's lease still lasts.
_LOOK: Final = 0.25


class _Working(Parser):
    def call(self, words: Sequence[str], inherited: Mapping[str, object]) -> int:
        """Keep what belongs to COMMAND from being taken for an option of ours."""
        own, command = self.split(words, 1)
        arguments = vars(self.parsed(own))
        if not command:
            self.error("there is no COMMAND: queue work NAME [OPTIONS] -- COMMAND")
        return self.act({**arguments, "command": tuple(command)}, inherited)


def parser() -> Parser:
    """Its parser."""
    parser = _Working(
        "coordlock queue work",
        _work,
        usage="NAME [OPTIONS] [--] COMMAND...",
        example="coordlock queue work mails --concurrency 4 -- ./send.sh",
    )
    parser.has_rest = True
    completed_by(parser.argument("name", metavar="NAME"), complete_work_queue)
    parser.option(
        "--concurrency",
        type=whole(1, 1000),
        metavar="N",
        default=1,
        help="How many items to work on at the same time. Default: 1.",
    )
    parser.option(
        "--count",
        type=whole(1, 2**31),
        metavar="N",
        help="End after N items. Default: go on until a signal comes.",
    )
    parser.option(
        "--max-failures",
        type=whole(1, 2**31),
        metavar="N",
        default=10,
        help="An item is dead after N failures. Default: 10.",
    )
    parser.option(
        "--retry-delay",
        type=seconds,
        metavar="DURATION",
        default=0.0,
        help="How long a failed item waits for the next try. Default: 0s.",
    )
    zero_is_done_option(parser)
    waiting_options(parser, "no item is ready")
    grant_options(parser, "fewer than --count items came in time")
    grace_option(parser)
    return parser.finished()


def _work(
    *,
    name: str,
    command: tuple[str, ...],
    concurrency: int,
    count: int | None,
    max_failures: int,
    retry_delay: float,
    zero_is_done: bool,
    grace: float,
    **options: Any,
) -> int:
    """Run COMMAND for each item of the work queue NAME.

    With --concurrency it works on several at the same time. COMMAND reads the item's data from
    stdin. If it ends with 0, the item is acknowledged; otherwise it is tried again. COMMAND finds
    COORDLOCK_NAME, COORDLOCK_ITEM, COORDLOCK_DELIVERY and COORDLOCK_TOKEN in its environment. If
    its item is lost, coordlock says so, ends COMMAND and all that it started, and goes on.

    It goes on through outages of the service, until a signal arrives, --count items were taken, or
    no item is ready within --timeout. At a signal it ends the commands and gives their items back,
    not counted as failures. Status 0 of a COMMAND that was told to end counts only with
    --zero-is-done.

    The exit status is 0, or 75 if fewer than --count items came in time. With a --count of 1 it is
    COMMAND's, or 79 if the item was lost.
    """
    request = LockRequest(name=name, **options)
    if not request.verbose and not request.quiet:
        show_log("WARNING")
    with Guard() as guard:  # forks, so it comes before the threads of a client
        settings = request.settings(label=os.path.basename(command[0]))
        with request.connected(settings) as client:
            queue = client.work_queue(name, max_failures=max_failures, retry_delay=retry_delay)
            crew = _Crew(guard, command, grace, zero_is_done, request)
            crew.stop.listen()
            patience = 0.0 if request.nonblock else request.timeout
            consumption, limits = queue._running(
                concurrency, LONGEST_DELAY, patience, crew.stop.cancellation
            )  # the crew ends its commands itself
            Running(*consumption, **limits).run(crew.work, count)
        if crew.stop.signal is not None:
            raise Interrupted(crew.stop.signal)
        if crew.failed:
            return crew.failed
        if count is not None and crew.taken < count:
            request.warn(f"work queue {name!r} has nothing to take")
            raise Refused(request.conflict_exit_code)
        return crew.status if count == 1 else Exit.OK


class _Stop:
    """Whether a signal has asked to end, which all threads see as soon as the system does.

    The command may get the signal, too, and end at once: then its status must not count, though the
    main thread has not yet run the handler.
    """

    def __init__(self) -> None:
        self.cancellation: Final = Cancellation()
        self._pipe, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._lock: Final = threading.Lock()
        self._signal: int | None = None

    def listen(self) -> None:
        """Let the signals that ask to end arrive here, from the main thread."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: self.cancellation.cancel())

    @property
    def signal(self) -> int | None:
        """The first of them; None while none has come."""
        with self._lock:
            if self._signal is None and select.select([self._pipe], [], [], 0)[0]:
                [self._signal] = os.read(self._pipe, 1)
            return self._signal


class _Crew:
    """What runs a command for each item. Its `work` is called in threads."""

    def __init__(
        self,
        guard: Guard,
        command: Sequence[str],
        grace: float,
        zero_is_done: bool,
        request: LockRequest,
    ) -> None:
        self._guard: Final = guard
        self._command: Final = command
        self._grace: Final = grace
        self._zero_is_done: Final = zero_is_done
        self._warn: Final = request.warn
        self.stop: Final = _Stop()
        #: The status to end with where COMMAND cannot be run; 0 while it can.
        self.failed: int = Exit.OK
        #: How many items it was given, and the latest status of a command.
        self.taken = 0
        self.status: int = Exit.OK

    def work(self, item: Item) -> None:
        """Run the command for ``item``, and say what comes of it."""
        self.taken += 1
        try:
            status = self._run(item)
            if status is None:
                item.release()  # a signal, a loss, or a COMMAND that cannot be run: no blame
            elif status == 0:
                item.ack()
            else:
                item.nack(reason=f"{self._command[0]} has ended with status {status}")
                self._warn(f"item {item.id}, delivery {item.deliveries}: status {status}")
        except LockLost as lost:
            self.status = Exit.LOST
            self._warn(str(lost))
        except BackendUnavailable as error:
            self.status = Exit.UNAVAILABLE
            self._warn(str(error))

    def _run(self, item: Item) -> int | None:
        """The exit status of the command for ``item``; None where nothing follows from it."""
        variables = {
            "COORDLOCK_NAME": item.name,
            "COORDLOCK_ITEM": item.id,
            "COORDLOCK_DELIVERY": str(item.deliveries),
            "COORDLOCK_TOKEN": str(item.token),
        }
        now = SYSTEM_CLOCK.now()  # first, here and below: a pause moves no deadline back
        limits = Limits.of(item.remaining(), self._grace)
        deadline = now + item.remaining() - limits.kill / 2
        with contextlib.closing(Child(self._guard, self._command, item.data)) as child:
            try:
                child.start(variables, deadline)
                reason, status = self._until_end(child, item, limits)
            except CommandFailed as error:
                self.failed = error.status
                self._warn(str(error))
                self.stop.cancellation.cancel()
                return None
        if child.was_late and not reason:
            late = f"ran out while coordlock did not run; {self._follows()}"
            self._warn(f"item {item.id} of work queue {item.name!r} {late}")
        if reason or child.was_late:
            self.status = Exit.LOST
            return None
        self.status = status
        is_told = self.stop.signal is not None
        return None if is_told and not (status == 0 and self._zero_is_done) else status

    def _until_end(self, child: Child, item: Item, limits: Limits) -> tuple[str | None, int]:
        """Why the command had to end, as `_reason_to_end` tells; and its status."""
        while (reason := self._reason_to_end(child, item, limits)) is None:
            change = child.change(_LOOK)
            if change is not None and change.unguarded:
                raise Unguarded
            if change is not None and change.status is not None:
                return None, change.status
        if reason:
            self._warn(f"item {item.id} of work queue {item.name!r} {reason}")
        now, left = SYSTEM_CLOCK.now(), limits.until_kill(item.remaining())
        child.extend(now + left + limits.kill / 2)
        child.send(signal.SIGTERM)
        status = killed_by(signal.SIGKILL)
        while (remaining := now + left - SYSTEM_CLOCK.now()) > 0:
            change = child.change(remaining)
            if change is not None and change.status is not None:
                status = change.status
                break
        child.send(signal.SIGKILL)  # whatever it started, too
        return reason, status

    def _reason_to_end(self, child: Child, item: Item, limits: Limits) -> str | None:
        """Why the command for ``item`` must end now, "" for a signal; None where it need not."""
        now = SYSTEM_CLOCK.now()
        remaining = item.remaining()
        if item.lost.is_set():
            return f"is lost: {item.lost.reason}; {self._follows()}"
        if self.stop.signal is not None:
            return ""
        if remaining <= limits.terminate:
            late = f"runs out in {remaining:.1f} s and heartbeats are not answered"
            return f"{late}; {self._follows()}"
        child.extend(now + remaining - limits.kill / 2)
        return None

    def _follows(self) -> str:
        return f"ending {self._command[0]}, and another worker takes the item"
