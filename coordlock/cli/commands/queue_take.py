"""``coordlock queue take``: a command for each item of a work queue."""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from coordlock.cli.child import Child, CommandFailed
from coordlock.cli.completion import complete_work_queue, completed_by
from coordlock.cli.exits import Exit, complain, killed_by
from coordlock.cli.lock_request import LockRequest
from coordlock.cli.options import (
    grace_option,
    grant_options,
    seconds,
    waiting_options,
    zero_is_done_option,
)
from coordlock.cli.parser import Parser, whole
from coordlock.cli.signals import Interrupted
from coordlock.cli.supervision import Supervision
from coordlock.cli.terminal import Terminal
from coordlock.client import Client
from coordlock.errors import BackendUnavailable, LockLost, SessionLost
from coordlock.locks.grant import Grant
from coordlock.settings import Settings
from coordlock.work.item import Item

__all__ = ["Taking", "parser"]

#: What the process for an item reports beside the status of its command.
_CONNECTED: Final = b"connected "
_AWAY: Final = b"away"
#: Seconds to the next attempt while the service is away: the first pause, and the longest.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0


@dataclass(eq=False, repr=False)
class _Request(LockRequest):
    """A request for an item."""

    max_failures: int = 10
    retry_delay: float = 0.0
    #: The pipe to the process that was started, which learns by it that the service answers.
    report: int = -1
    is_connected: bool = False

    @contextlib.contextmanager
    def _connected(self, settings: Settings) -> Iterator[Client]:
        with super()._connected(settings) as client:
            self.is_connected = True
            os.write(self.report, _CONNECTED)
            yield client

    def _acquire(self, client: Client) -> Callable[[float | None], Grant]:
        return client.work_queue(
            self.names[0], max_failures=self.max_failures, retry_delay=self.retry_delay
        ).take

    def _refusal(self, client: Client) -> str:
        return f"{self.what} has nothing to take"

    @property
    def what(self) -> str:
        """The queue, in messages."""
        return f"work queue {self.names[0]!r}"

    def environment(self, grant: Grant, settings: Settings) -> dict[str, str]:
        """What a command finds in its environment."""
        item = cast("Item", grant)
        variables = super().environment(grant, settings)
        return {**variables, "COORDLOCK_ITEM": item.id, "COORDLOCK_DELIVERY": str(item.deliveries)}


class Taking(Parser):
    """The parser of a command that runs COMMAND for each item."""

    def call(self, words: Sequence[str], inherited: Mapping[str, object]) -> int:
        """Keep what belongs to COMMAND from being taken for an option of ours."""
        own, command = self.split(words, 1)
        arguments = vars(self.parsed(own))
        if not command:
            self.error(
                f"there is no COMMAND: {self.prog.partition(' ')[2]} NAME [OPTIONS] -- COMMAND"
            )
        return self.act({**arguments, "command": tuple(command)}, inherited)

    def limits(self) -> None:
        """How often an item is tried, and when."""
        self.option(
            "--max-failures",
            type=whole(1, 2**31),
            metavar="N",
            default=10,
            help="An item is dead after N failures. Default: 10.",
        )
        self.option(
            "--retry-delay",
            type=seconds,
            metavar="DURATION",
            default=0.0,
            help="How long a failed item waits for the next try. Default: 0s.",
        )
        zero_is_done_option(self)


def parser() -> Parser:
    """Its parser."""
    parser = Taking(
        "coordlock queue take",
        _take,
        usage="NAME [OPTIONS] [--] COMMAND...",
        example="coordlock queue take mails --retry-delay 1m -- ./send.sh",
    )
    parser.has_rest = True
    completed_by(parser.argument("name", metavar="NAME"), complete_work_queue)
    parser.option(
        "--count",
        type=whole(1, 2**31),
        metavar="N",
        help="End after N items. Default: go on until a signal comes.",
    )
    parser.limits()
    waiting_options(parser, "no item is ready")
    grant_options(parser, "no item is taken")
    grace_option(parser)
    return parser.finished()


def _take(
    *,
    name: str,
    command: tuple[str, ...],
    count: int | None,
    grace: float,
    zero_is_done: bool,
    **options: Any,
) -> int:
    """Run COMMAND for each item of the work queue NAME.

    COMMAND reads the item's data from stdin. If it ends with 0, the item is acknowledged; otherwise
    it is tried again. COMMAND finds COORDLOCK_NAME, COORDLOCK_ITEM, COORDLOCK_DELIVERY and
    COORDLOCK_TOKEN in its environment. If the item is lost, coordlock ends COMMAND, as `coordlock
    run` does.

    A COMMAND that ends after a signal to end has not done its item, whatever its status, unless
    --zero-is-done is given: the item is given back, not counted as a failure.

    It goes on until a signal arrives, COUNT items were taken, or no item is ready within --timeout:
    then the exit status is 75. With a COUNT of 1 the status is COMMAND's.
    """
    taken, pause = 0, _FIRST_PAUSE
    task = _Task(name, command, grace, zero_is_done, options)
    patience = math.inf if options["timeout"] is None else options["timeout"]
    give_up = patience = 0.0 if options["nonblock"] else patience
    while True:
        ended = _apart(task)
        task = replace(task, was_connected=task.was_connected or ended.was_connected)
        if ended.was_connected:
            pause, give_up = _FIRST_PAUSE, time.monotonic() + patience
        if ended.is_away and time.monotonic() < give_up:
            task = replace(task, is_away=True)
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, _LONGEST_PAUSE)
            continue
        if ended.code is not None:
            return ended.code
        task = replace(task, is_away=False)
        taken += 1
        if taken == count:
            return ended.command if count == 1 else Exit.OK


@dataclass(frozen=True)
class _Ended:
    """How the process for an item has ended: with COMMAND's status, or so that no other follows."""

    command: int = 0
    code: int | None = None
    #: Whether the service answered, and whether it does no longer.
    was_connected: bool = False
    is_away: bool = False


@dataclass(frozen=True)
class _Task:
    """The work on one item."""

    name: str
    command: tuple[str, ...]
    grace: float
    zero_is_done: bool
    options: Mapping[str, Any]
    #: Whether the service has ever answered, and whether it is known not to answer any more.
    was_connected: bool = False
    is_away: bool = False

    def work(self, report: int, starter: int) -> int:
        """Take an item and do it; the exit status. Writes COMMAND's status to ``report``.

        The pipe ``starter`` closes when the process has died that started this one.
        """
        request = _Request(name=self.name, report=report, **self.options)
        try:
            return self._work(request, report, starter)
        except (BackendUnavailable, SessionLost) as error:
            if not (self.was_connected or request.is_connected):
                raise  # it was never there: the configuration may be wrong
            if not self.is_away:
                request.warn(f"{error}; takes items again when the service answers")
            os.write(report, _AWAY)
            return Exit.UNAVAILABLE

    def _work(self, request: _Request, report: int, starter: int) -> int:
        with tempfile.TemporaryFile() as data:
            os.dup2(data.fileno(), 0)  # what is written to the file, the command reads
            os.set_inheritable(0, True)
            # Before connecting, because that starts threads, and after that no fork is safe.
            child = Child(self.command)
            threading.Thread(target=_end_with, args=(starter,), daemon=True).start()
            with contextlib.closing(child):
                settings = request.settings(label=os.path.basename(self.command[0]))
                with request.acquired(settings) as grant, contextlib.closing(child):
                    item = cast("Item", grant)
                    os.pwrite(data.fileno(), item.data, 0)
                    return self._supervise(request, item, child, settings, report)

    def _supervise(
        self, request: _Request, item: Item, child: Child, settings: Settings, report: int
    ) -> int:
        what = f"item {item.id} of {request.what}"
        supervision = Supervision(child, item, what, self.grace, Terminal.open(), request.warn)
        try:
            status = supervision.run(request.environment(item, settings))
        except CommandFailed as error:
            item.release()  # no fault of the item's
            complain(error)
            return error.status
        except LockLost as error:  # it was too late to begin
            request.warn(str(error))
            os.write(report, b"%d" % Exit.LOST)
            return Exit.OK
        if supervision.lost:
            item.release(0.5)
            os.write(report, b"%d" % Exit.LOST)
            return Exit.OK
        try:
            is_stopped = supervision.told_to_end is not None
            if status == 0 and (self.zero_is_done or not is_stopped):
                item.ack()
            elif is_stopped:
                item.release()  # the command was stopped, which is not the item's fault
            else:
                item.nack(reason=f"{self.command[0]} has ended with status {status}")
                request.warn(f"item {item.id}, delivery {item.deliveries}: status {status}")
        except (LockLost, BackendUnavailable) as error:
            request.warn(str(error))
            status = Exit.LOST if isinstance(error, LockLost) else Exit.UNAVAILABLE
            item.release(0.5)
        os.write(report, b"%d" % status)
        return Exit.OK


def _apart(task: _Task) -> _Ended:
    """Do ``task`` in a process of its own: each command is forked where no thread runs.

    That process returns from here, too, and ends as the whole program would.
    """
    reading, report = os.pipe()
    starter, mine = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.close(mine)
        return _Ended(code=task.work(report, starter))
    os.close(report)
    os.close(starter)
    with open(reading, "rb") as told, open(mine, "wb"):
        code = _status(pid)
        words = told.read().partition(_CONNECTED)
    was_connected, command = bool(words[1]), words[0] + words[2]
    if code == Exit.OK and command:
        return _Ended(int(command), None, was_connected)
    return _Ended(0, code, was_connected, is_away=command == _AWAY)


def _status(pid: int) -> int:
    """The exit status of the process ``pid``. Passes on to it the signals that come meanwhile."""
    interrupted: Interrupted | None = None
    while True:
        try:
            code = _waited(pid)
        except Interrupted as signalled:
            interrupted = signalled
            # The terminal tells all of its group; others have told this process alone.
            terminal = Terminal.open() if signalled.number == signal.SIGINT else None
            if terminal is None or not terminal.is_mine:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signalled.number)
        else:
            if interrupted is not None:
                raise interrupted
            return code


def _end_with(starter: int) -> None:
    """End this process, as by a signal, when the pipe ``starter`` closes."""
    os.read(starter, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _waited(pid: int) -> int:
    """The exit status of the process ``pid``, once it has ended."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else killed_by(-code)
