"""``coordlock queue work``: a command for each item of a work queue, several at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from coordlock.cli.child import Child, CommandFailed
from coordlock.cli.exits import Exit
from coordlock.cli.guard import Guard
from coordlock.cli.lock_request import LockRequest, show_log
from coordlock.cli.parser import Refused
from coordlock.cli.signals import ENDING, Bell, Inbox, Interrupted
from coordlock.cli.supervision import Supervision
from coordlock.errors import BackendUnavailable, LockLost
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.deadline import Cancellation
from coordlock.work.item import LONGEST_DELAY, Item
from coordlock.work.running import Running

__all__ = ["work"]


#: Seconds between two looks whether a signal has asked to end.
_LOOK: Final = 0.25


def work(
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
    its item is lost, coordlock says so, ends COMMAND and its process group, and takes the next
    item.

    It ends when a signal arrives, when --count items were taken, or when no item is ready within
    --timeout, and not at an outage of the service. At a signal it ends the commands and gives their
    items back, not counted as failures. Status 0 of a COMMAND that coordlock ended counts only with
    --zero-is-done.

    The exit status is 0, or 75 if fewer than --count items came in time. With a --count of 1 it is
    COMMAND's, or 79 if the item was lost.
    """
    request = LockRequest([name], **options)
    if not request.verbose and not request.quiet:
        show_log("WARNING")
    with Guard() as guard:  # forks, so it comes before the threads of a client
        settings = request.settings(label=os.path.basename(command[0]))
        with request.connected(settings) as client:
            queue = client.work_queue(name, max_failures=max_failures, retry_delay=retry_delay)
            crew = _Crew(guard, command, grace, zero_is_done, request)
            patience = 0.0 if request.nonblock else request.timeout
            # The crew ends its commands itself.
            limits = concurrency, LONGEST_DELAY, patience, crew.stop.cancellation
            done = Running(*queue._running(*limits)).run(crew.work, count)
        if crew.stop.signal is not None:
            raise Interrupted(crew.stop.signal)
        if crew.failed:
            return crew.failed
        if count is not None and crew.taken < count:
            request.warn(f"work queue {name!r} has nothing to take")
            raise Refused(request.conflict_exit_code)
        if count != 1:
            return Exit.OK
        return crew.status or (Exit.OK if done else Exit.LOST)


class _Stop:
    """Whether a signal has asked to end, which all threads see as soon as the system does.

    Made in the main thread; the signals that ask to end arrive here from then on.

    The command may get the signal, too, and end at once: then its status must not count, though the
    main thread has not yet run the handler.
    """

    def __init__(self) -> None:
        self.cancellation: Final = Cancellation()
        self._lock: Final = threading.Lock()
        self._inbox: Final = Inbox(ENDING, self.cancellation.cancel)

    @property
    def signal(self) -> int | None:
        """One of them; None while none has come."""
        with self._lock:
            self._inbox.wait(0)
            return min(self._inbox.ending, default=None)


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
            elif status:  # otherwise the end of its block acknowledges it
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
        with contextlib.closing(Child(self._guard, self._command, item.data)) as child:
            supervision = _ItemSupervision(child, item, self._grace, self._warn, self.stop)
            try:
                status = supervision.run(variables)
            except CommandFailed as error:
                self.failed = error.status
                self._warn(str(error))
                self.stop.cancellation.cancel()
                return None
        if supervision.lost:
            self.status = Exit.LOST
            return None
        self.status = status
        is_told = self.stop.signal is not None
        return None if is_told and not (status == 0 and self._zero_is_done) else status


class _ItemSupervision(Supervision):
    """One run of a command for an item, in a thread: a signal to the main thread ends it, too."""

    def __init__(
        self, child: Child, item: Item, grace: float, warn: Callable[[str], None], stop: _Stop
    ) -> None:
        what = f"item {item.id} of work queue {item.name!r}"
        super().__init__(child, item, what, grace, None, warn, inbox=Bell(_LOOK))
        self._stop = stop

    def _look_at_lease(self) -> float | None:
        if self._kill_at is None and self._stop.signal is not None:
            self._terminate(SYSTEM_CLOCK.now(), self._grant.remaining())
        return super()._look_at_lease()
