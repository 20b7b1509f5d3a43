"""``coordlock queue work``: a command for each item of a work queue, several at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from coordlock.cli.commands.queue_take import Taking
from coordlock.cli.completion import complete_work_queue, completed_by
from coordlock.cli.connection import Service, connected
from coordlock.cli.exits import Exit, complain
from coordlock.cli.options import grace_option, seconds, service_options
from coordlock.cli.parser import Parser, whole
from coordlock.cli.supervision import Limits
from coordlock.errors import BackendUnavailable, LockLost
from coordlock.model.names import check_name
from coordlock.work.item import Item

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
    grace: float,
    service: Service,
) -> int:
    """Run COMMAND for the items of the work queue NAME, several at a time.

    All share one connection. COMMAND reads the item's data from stdin. If it ends with 0, the item
    is acknowledged; otherwise it is tried again. COMMAND finds COORDLOCK_NAME, COORDLOCK_ITEM,
    COORDLOCK_DELIVERY and COORDLOCK_TOKEN in its environment. If its item is lost, coordlock says
    so, ends COMMAND and all that it started, and goes on.

    It goes on until no item is ready within --timeout, or until a signal arrives: then it ends the
    commands and gives their items back, not counted as failures.
    """
    check_name(name)
    settings = service.settings(label=os.path.basename(command[0]))
    with connected(settings) as client:
        queue = client.work_queue(name, max_failures=max_failures, retry_delay=retry_delay)
        crew = _Crew(command, grace)
        try:
            for item in queue.consume(concurrency=concurrency, timeout=timeout):
                crew.begin(item)
                if crew.failed:
                    break
        except BaseException:
            crew.stop()
            raise
        finally:
            crew.join()
    return crew.failed


@dataclass(eq=False)
class _Crew:
    """The commands that run now, each with a thread."""

    command: Sequence[str]
    grace: float
    #: The status to end with where COMMAND cannot be run; 0 while it can.
    failed: int = Exit.OK
    _is_stopping: threading.Event = field(default_factory=threading.Event)
    _threads: set[threading.Thread] = field(default_factory=set)

    def begin(self, item: Item) -> None:
        """Work on ``item`` in a thread of its own."""
        block = contextlib.ExitStack()
        try:
            block.enter_context(item)  # here, because the next item comes after that
        except LockLost as lost:
            complain(f"item {item.id}: {lost}; another worker takes it")
            return
        self._threads = {one for one in self._threads if one.is_alive()}
        thread = threading.Thread(target=self._run, args=(item, block))
        self._threads.add(thread)
        thread.start()

    def stop(self) -> None:
        """End all commands; their items are given back without blame."""
        self._is_stopping.set()

    def join(self) -> None:
        """Wait for all of them."""
        for thread in self._threads:
            thread.join()

    def _run(self, item: Item, block: contextlib.ExitStack) -> None:
        try:
            with block:
                status = self._status(item)
                if status is None:
                    item.release()  # a signal, a loss, or a COMMAND that cannot be run: no blame
                elif status:
                    item.nack(reason=f"{self.command[0]} has ended with status {status}")
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
        try:
            process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, env=os.environ | variables, process_group=0
            )
        except OSError as error:
            self.failed = Exit.NOT_FOUND
            if not isinstance(error, FileNotFoundError):
                self.failed = Exit.NOT_EXECUTABLE
            complain(f"{self.command[0]}: {error.strerror}")
            return None
        limits, data = Limits.of(item.remaining(), self.grace), item.data
        while (reason := self._reason_to_end(item, limits)) is None:
            try:
                process.communicate(data, timeout=_LOOK)
                return process.returncode
            except subprocess.TimeoutExpired:
                data = b""  # the rest of it is written all the same
        is_lost = item.lost.is_set()
        if reason:
            complain(f"item {item.id} of work queue {item.name!r} {reason}")
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=limits.until_kill(item.remaining()))
        _signal(process, signal.SIGKILL)
        return None if process.wait() or is_lost else 0

    def _reason_to_end(self, item: Item, limits: Limits) -> str | None:
        """Why the command for ``item`` must end now, "" for a signal; None where it need not."""
        if item.lost.is_set():
            return f"is lost: {item.lost.reason}; {self._follows()}"
        if self._is_stopping.is_set():
            return ""
        remaining = item.remaining()
        if remaining <= limits.terminate:
            late = f"runs out in {remaining:.1f} s and heartbeats are not answered"
            return f"{late}; {self._follows()}"
        return None

    def _follows(self) -> str:
        return f"ending {self.command[0]}, and another worker takes the item"


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Signal the process group of the command; nothing where no process of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
