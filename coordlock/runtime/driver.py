"""The drivers that run protocols: one blocks, one awaits, one goes on in the background.

A protocol is a generator that yields promises and gets their values. It only advances in its
driver, so a caller that gives up has stopped it: nothing is granted to a caller that has gone. A
protocol makes two methods, one that blocks and one to await.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from coordlock.errors import ClientClosed
from coordlock.runtime.deadline import Deadline, DeadlineReached
from coordlock.runtime.process import PROCESS
from coordlock.runtime.promise import Promise

if TYPE_CHECKING:
    import asyncio  # programs that block never load it

__all__ = [
    "Call",
    "Steps",
    "awaited",
    "awaiting",
    "blocking",
    "bounded",
    "completion",
    "run",
    "run_async",
    "run_in_background",
]

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])

_LONGEST_WAIT_S: Final = 5.0
#: A task that has no deadline wakes up for its promise, and now and then lest that be forgotten.
_LONGEST_SLEEP_S: Final = 60.0


class Call:
    """One run of a protocol, by a caller that may give up at any line.

    What the protocol leaves behind can look at it later.
    """

    #: Whether its caller got an error.
    has_failed = False
    #: The deadline in force: see `bounded`.
    deadline: Deadline | None = None
    #: The loop in which the caller waits, until it has the result.
    loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_given_up(self) -> bool:
        """Whether its caller has no result and never will: it got an error, or its loop is closed.

        Not where the caller has dropped the result.
        """
        return self.has_failed or (self.loop is not None and self.loop.is_closed())


#: What a protocol yields: a promise, whose result it gets, or `Call`, for which it gets its own.
Step = Promise[Any] | type[Call]
#: A protocol with a result of type T.
Steps = Generator[Step, Any, T]


def run(steps: Steps[T]) -> T:
    """Run ``steps`` in the calling thread; its result.

    The deadline and whatever interrupts the wait, Ctrl-C too, are thrown into the protocol. What
    it does after that, to clean up, it must bound itself: the deadline is thrown once.
    """
    call = Call()
    try:
        try:
            step = next(steps)
            while True:
                try:
                    if isinstance(step, Promise) and not step._outcomes:
                        _wait(step, call.deadline)
                except BaseException as error:
                    step = _interrupted(steps, call, error)
                else:
                    step = _resumed(steps, call, step)
        except StopIteration as stop:
            result: T = stop.value
            return result
    except BaseException as error:
        call.has_failed = True
        steps.close()  # where it was struck between two waits, it cleans up now
        if isinstance(error, ClientClosed) and _is_left_behind():
            raise SystemExit from None
        raise


def _is_left_behind() -> bool:
    """Whether the interpreter exits, and so stops this daemon thread without a traceback."""
    return PROCESS.is_exiting and threading.current_thread().daemon


async def run_async(steps: Steps[T]) -> T:
    """Run ``steps`` in the current task; its result.

    The deadline, once, and the task's cancellation are thrown into the protocol, as in `run`.
    Raises RuntimeError where no loop of asyncio runs, as under trio.
    """
    if sys.is_finalizing():  # a coroutine that never ended is dropped, and may await nothing
        steps.close()
        raise GeneratorExit
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        steps.close()
        if isinstance(error.__context__, GeneratorExit):  # it is dropped after its loop's end
            raise GeneratorExit from None
        raise RuntimeError(
            "no event loop of asyncio runs here, and coordlock's async clients need one: under "
            "trio, use a client of coordlock.connect() in trio.to_thread.run_sync()"
        ) from None
    call = Call()
    call.loop = asyncio.get_running_loop()
    try:
        try:
            step = next(steps)
            while True:
                try:
                    if isinstance(step, Promise) and not step._outcomes:
                        await completion(step, call.deadline)
                except BaseException as error:
                    step = _interrupted(steps, call, error)
                else:
                    step = _resumed(steps, call, step)
        except StopIteration as stop:
            call.loop = None
            result: T = stop.value
            return result
    except BaseException:
        call.has_failed = True
        steps.close()
        raise


def run_in_background(
    steps: Steps[T], go_on: Callable[[Callable[[], None]], None] | None = None
) -> Promise[T]:
    """Start ``steps`` here and go on in the thread that completes its promise, or by ``go_on``.

    Its steps must not block, and it has no deadline, because no caller waits. The promise takes
    the outcome.
    """
    going = _Background(steps, go_on)
    going.advance()
    return going.promise


class _Background(Generic[T]):
    """Steps without a caller.

    An object, because functions that refer to each other are left to the garbage collector.
    """

    __slots__ = ("awaited", "call", "go_on", "promise", "steps")

    def __init__(self, steps: Steps[T], go_on: Callable[[Callable[[], None]], None] | None) -> None:
        self.steps = steps
        self.call = Call()
        self.go_on = go_on
        self.promise: Promise[T] = Promise()
        #: The step that is not done, or was not when the steps last went on.
        self.awaited: Promise[Any] | None = None

    def advance(self, awaited: Promise[Any] | None = None) -> None:
        """Begin; or go on from ``awaited``, which is done, to the next step that is not."""
        if awaited is not self.awaited:
            return  # a signal handler has raised after this was done
        try:
            step = next(self.steps) if awaited is None else awaited
            while not isinstance(step, Promise) or step.done():
                step = _resumed(self.steps, self.call, step)
        except StopIteration as stop:
            self.promise.resolve(stop.value)
        except BaseException as error:
            self.promise.fail(error)
            if not isinstance(error, Exception):
                raise  # Ctrl-C is for the thread that runs this step
        else:
            self.awaited = step
            step.add_done_callback(self.advance if self.go_on is None else self.later)

    def later(self, step: Promise[Any]) -> None:
        """Go on from ``step``, where the caller of `run_in_background` wants it."""
        assert self.go_on is not None
        self.go_on(partial(self.advance, step))


def bounded(steps: Steps[T], deadline: Deadline | None) -> Steps[T]:
    """The result of ``steps``, to which ``deadline`` applies in place of the caller's."""
    call: Call = yield Call
    former = call.deadline
    try:
        call.deadline = deadline
        return (yield from steps)
    finally:
        call.deadline = former


def awaited(promise: Promise[T]) -> Steps[T]:
    """The result of ``promise``."""
    result: T = yield promise
    return result


def _wait(promise: Promise[Any], deadline: Deadline | None) -> None:
    gate = threading.Lock()
    gate.acquire()

    def wake(_: object) -> None:
        with suppress(RuntimeError):  # it is open
            gate.release()

    promise.add_done_callback(wake)
    try:
        if deadline is not None:
            deadline.add(wake)
        while not promise.done():
            gate.acquire(timeout=_remaining(deadline))
    finally:
        promise.remove_done_callback(wake)
        if deadline is not None:
            deadline.discard(wake)


async def completion(promise: Promise[Any], deadline: Deadline | None = None) -> None:
    """Wait in the current task until ``promise`` is done, however it ends.

    Raises what `Deadline.left` does.
    """
    import asyncio

    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def wake(_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(done.set)

    promise.add_done_callback(wake)
    try:
        if deadline is not None:
            deadline.add(wake)
        while not promise.done():
            seconds = _LONGEST_SLEEP_S if deadline is None else _remaining(deadline)
            timer = loop.call_later(seconds, done.set)
            try:
                await done.wait()
            finally:
                timer.cancel()
            done.clear()
    finally:
        promise.remove_done_callback(wake)
        if deadline is not None:
            deadline.discard(wake)


def _resumed(steps: Steps[T], call: Call, step: Step) -> Step:
    """The next step after ``step``, which is done."""
    if isinstance(step, type):
        return steps.send(call)
    value, error = step._outcomes[0]
    try:
        return steps.send(value) if error is None else steps.throw(error)
    finally:
        del value, error  # a long wait must not keep the last answer, nor a traceback its frame


def _interrupted(steps: Steps[T], call: Call, error: BaseException) -> Step:
    """The next step after ``error`` has ended the wait. A deadline does so once."""
    if isinstance(error, DeadlineReached):
        call.deadline = None
    return steps.throw(error)


def _remaining(deadline: Deadline | None) -> float:
    """How long to wait before looking again; raises what `Deadline.left` does.

    No wait is long: none counts the time of a suspend, as the clock does, and a signal that comes
    in the moment before a wait is seen only after it.
    """
    return _LONGEST_WAIT_S if deadline is None else min(deadline.left(), _LONGEST_WAIT_S)


# The two public methods of a protocol: one that blocks, one to await


def blocking(protocol: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], T]:
    """The method that runs ``protocol`` in the calling thread.

    It has the name of ``protocol`` without the underscore, and its docstring and parameters.
    """

    @functools.wraps(protocol)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(protocol(self, *args, **kwargs))

    return _public(method, protocol)


def awaiting(
    protocol: Callable[Concatenate[S, P], Steps[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The coroutine method that runs ``protocol`` in the current task, presented likewise."""

    @functools.wraps(protocol)
    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_async(protocol(self, *args, **kwargs))

    return _public(method, protocol)


def _public(method: M, protocol: Callable[..., Any]) -> M:
    """``method`` with the public name; that of ``protocol`` is in the errors of wrong calls."""
    method.__name__ = protocol.__name__.removeprefix("_")
    owner = protocol.__qualname__.rpartition(".")[0].lstrip("_")
    method.__qualname__ = protocol.__qualname__ = f"{owner}.{method.__name__}"
    return method
