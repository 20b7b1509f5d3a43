"""``coordlock queue work``: a command for each item of a work queue, several at a time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Final

from coordlock.cli.commands.queue_take import Taking
from coordlock.cli.completion import complete_work_queue, completed_by
from coordlock.cli.connection import Service, connected
from coordlock.cli.exits import Exit, complain
from coordlock.cli.guard import Guard
from coordlock.cli.lock_request import show_log
from coordlock.cli.options import grace_option, seconds, service_options
from coordlock.cli.parser import Parser, whole
from coordlock.cli.signals import ENDING, Interrupted
from coordlock.cli.supervision import Limits
from coordlock.errors import BackendUnavailable, LockLost
from coordlock.model.names import check_name
from coordlock.runtime.cancellation import Cancellation
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.work.item import LONGEST_DELAY, Item

__all__ = ["parser"]

#: Seconds between two looks at how long an item's lease still lasts.
_LOOK: Final = 0.25


def parser() -> Parser:
    """Its parser."""
    parser = Taking(
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
        "--timeout",
        type=seconds,
        metavar="DURATION",
        help="End when no item was ready for this long. Default: go on until a signal comes.",
    )
    parser.limits()
    service_options(parser)
    grace_option(parser)
    return parser.finished()


def _work(
    *,
    name: str,
    command: tuple[str, ...],
    concurrency: int,
    timeout: float | None,
    max_failures: int,
    retry_delay: float,
    zero_is_done: bool,
    grace: float,
    service: Service,
) -> int:
    """Run COMMAND for the items of the work queue NAME, several at a time.

    All share one connection. COMMAND reads the item's data from stdin. If it ends with 0, the item
    is acknowledged; otherwise it is tried again. COMMAND finds COORDLOCK_NAME, COORDLOCK_ITEM,
    COORDLOCK_DELIVERY and COORDLOCK_TOKEN in its environment. If its item is lost, coordlock says
    so, ends COMMAND and all that it started, and goes on.

    It goes on through outages of the service, until no item is ready within --timeout, or until a
    signal arrives: then it ends the commands and gives their items back, not counted as failures.
    Status 0 of a COMMAND that was told to end counts only with --zero-is-done.
    """
    check_name(name)
    settings = service.settings(label=os.path.basename(command[0]))
    show_log("WARNING")
    # Before connecting, because that starts threads, and after that no fork is safe.
    with contextlib.closing(_Crew(command, grace, zero_is_done)) as crew:
        with connected(settings) as client:
            queue = client.work_queue(name, max_failures=max_failures, retry_delay=retry_delay)
            stop = crew.stop
            stop.listen()
            queue.run(
                crew.work,
                concurrency=concurrency,
                grace=LONGEST_DELAY,  # the crew ends its commands itself
                timeout=timeout,
                cancellation=stop.cancellation,
            )
        if stop.signal is not None:
            raise Interrupted(stop.signal)
        return crew.failed


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

    def __init__(self, command: Sequence[str], grace: float, zero_is_done: bool) -> None:
        self._command: Final = command
        self._grace: Final = grace
        self._zero_is_done: Final = zero_is_done
        self._guard: Final = Guard()
        self.stop: Final = _Stop()
        #: The status to end with where COMMAND cannot be run; 0 while it can.
        self.failed: int = Exit.OK

    def close(self) -> None:
        """All commands have ended."""
        self._guard.dismiss()

    def work(self, item: Item) -> None:
        """Run the command for ``item``, and say what comes of it."""
        try:
            status = self._status(item)
            if status is None:
                item.release()  # a signal, a loss, or a COMMAND that cannot be run: no blame
            elif status == 0:
                item.ack()
            else:
                item.nack(reason=f"{self._command[0]} has ended with status {status}")
                complain(f"item {item.id}, delivery {item.deliveries}: status {status}")
        except (LockLost, BackendUnavailable) as error:
            complain(str(error))

    def _status(self, item: Item) -> int | None:
        """The exit status of the command for ``item``; None where nothing follows from it."""
        variables = {
            "COORDLOCK_NAME": item.name,
            "COORDLOCK_ITEM": item.id,
            "COORDLOCK_DELIVERY": str(item.deliveries),
            "COORDLOCK_TOKEN": str(item.token),
        }
        limits, data = Limits.of(item.remaining(), self._grace), item.data
        try:
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, env=os.environ | variables, process_group=0
            )
        except OSError as error:
            self.failed = Exit.NOT_FOUND
            if not isinstance(error, FileNotFoundError):
                self.failed = Exit.NOT_EXECUTABLE
            complain(f"{self._command[0]}: {error.strerror}")
            self.stop.cancellation.cancel()
            return None
        try:
            while (reason := self._reason_to_end(process.pid, item, limits)) is None:
                try:
                    process.communicate(data, timeout=_LOOK)
                    break
                except subprocess.TimeoutExpired:
                    data = b""  # the rest of it is written all the same
            else:
                if reason:
                    complain(f"item {item.id} of work queue {item.name!r} {reason}")
                now, left = SYSTEM_CLOCK.now(), limits.until_kill(item.remaining())
                self._guard.extend(process.pid, now + left + limits.kill / 2)
                _signal(process, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=left)
                _signal(process, signal.SIGKILL)
            status = process.wait()
        finally:
            self._guard.forget(process.pid)
        if reason:
            return None
        is_told = self.stop.signal is not None
        return None if is_told and not (status == 0 and self._zero_is_done) else status

    def _reason_to_end(self, group: int, item: Item, limits: Limits) -> str | None:
        """Why the command for ``item`` must end now, "" for a signal; None where it need not."""
        now = SYSTEM_CLOCK.now()  # first, so that a pause moves no deadline back
        remaining = item.remaining()
        if item.lost.is_set():
            return f"is lost: {item.lost.reason}; {self._follows()}"
        if self.stop.signal is not None:
            return ""
        if remaining <= limits.terminate:
            late = f"runs out in {remaining:.1f} s and heartbeats are not answered"
            return f"{late}; {self._follows()}"
        self._guard.extend(group, now + remaining - limits.kill / 2)
        return None

    def _follows(self) -> str:
        return f"ending {self._command[0]}, and another worker takes the item"


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Signal the process group of the command; nothing where no process of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
