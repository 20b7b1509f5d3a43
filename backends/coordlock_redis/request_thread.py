"""The thread that receives answers and messages, each over a connection of its own.

It sends what the calling threads could not send themselves.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from redis import exceptions

from coordlock.errors import BackendError, BackendUnavailable, SessionLost
from coordlock.runtime.clock import Clock
from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS, THREAD
from coordlock.runtime.promise import Promise, failed
from coordlock.runtime.sockets import Poll
from coordlock_redis.errors import SERVICE, client_closed, is_elsewhere, translate
from coordlock_redis.requests import Request, ScriptContext
from coordlock_redis.servers import BROKEN, Connection, Servers, packed
from coordlock_redis.subscription import Subscription

__all__ = ["RequestThread"]

T = TypeVar("T")

log = Log("coordlock")

_STRAY: Final = OSError("the server sent an answer to no request")
#: By a signal handler.
_INTERRUPTED: Final = OSError("a request was interrupted")
#: The next answer belongs to this attempt of that request, or says how many replicas have it.
_Slot = tuple[Request[Any], int, bool]


class RequestThread:
    """All requests of a client but heartbeats. Its thread runs from the first one until `close`.

    Requests go out as they come, without waiting for the answers to those before.

    Args:
        replicas: how many must have what a request changes.
    """

    def __init__(
        self,
        servers: Servers,
        context: ScriptContext,
        subscription: Subscription,
        clock: Clock,
        replicas: int = 0,
    ) -> None:
        #: The connection, if there is one.
        self.connection: Connection | None = None
        #: Nothing is called where a thread other than that for I/O holds it. So no signal handler
        #: runs there, which might itself ask for something.
        self._lock: Final = threading.RLock()
        #: Why the connection must be given up; None while it works.
        self._trouble: Exception | None = None
        self.context: Final = context
        self._servers: Final = servers
        self._subscription: Final = subscription
        self._clock: Final = clock
        self._replicas: Final = replicas
        self._timeout: Final = servers.timeout
        self._pid: Final = PROCESS.id
        #: What the thread for I/O is to send.
        self._asked: list[Request[Any]] = []
        self._slots: deque[_Slot] = deque()
        self._held: dict[int, Any] = {}
        #: What could not be sent at once.
        self._unsent = b""
        #: The scripts that were sent to it.
        self._known: set[str] = set()
        #: The first of these is the thread for I/O; others end at once.
        self._threads: list[threading.Thread] = []
        self._ended: Promise[None] = Promise()
        self._until: float | None = None
        self._poll: Final = Poll()
        #: What ends the wait of the thread for I/O, from any thread.
        self._woken, self._waking = socket.socketpair()
        for end in (self._woken, self._waking):
            end.setblocking(False)
        subscription.wake = self._wake

    def ask(self, request: Request[T]) -> Promise[T]:
        """Send ``request``; its promise."""
        if PROCESS.id != self._pid:  # the child of a fork shares the socket, and has no thread
            return failed(client_closed())
        if self._until is not None or sys.is_finalizing():
            return failed(self._refusal())
        if self._sends_at_once(request):
            if self._trouble is not None or self._unsent:
                self._wake()
            return request.promise
        self._asked.append(request)
        if self._ended.done():
            self._refuse()
        self._start()
        self._wake()
        return request.promise

    def _sends_at_once(self, request: Request[Any]) -> bool:
        """Send it from the calling thread, unless the thread for I/O must do that."""
        connection = self.connection
        if (
            connection is None
            or not connection.is_direct
            or self._replicas
            or request.needs_subscription
        ):
            return False
        data = request.command(self.context, connection)
        request.sent_at, request.attempts = self._clock.now(), 1
        if self._put(connection, [(request, 1, False)], data):
            return True
        request.attempts = 0
        return False

    def _put(
        self, connection: Connection, slots: list[_Slot], data: bytes, asked: int | None = None
    ) -> bool:
        """Send ``data`` for ``slots``, or keep for the thread for I/O what can't be sent at once.

        ``asked`` is how many of the requests that wait for the thread for I/O these are, from the
        first. Returns False and sends nothing if others come first or the connection is gone.
        """
        trouble: Exception | None = None
        written: list[int] = []
        # Writes when it is added to `written`: what was written is known before a handler runs.
        write = map(os.write, (connection.number,), (data,)) if connection.is_direct else ()
        with self._lock:
            if connection is not self.connection or self._trouble is not None:
                return False
            if asked is None and self._asked:
                return False
            self._trouble = _INTERRUPTED
            self._slots += slots
            if asked is not None:
                del self._asked[:asked]
            if self._unsent:
                self._unsent += data
            else:
                try:
                    written += write
                except BlockingIOError:
                    pass
                except OSError as error:
                    trouble = error
                self._unsent = data[written[0] :] if written else data
            self._trouble = trouble
        return True

    def listen(self) -> None:
        """Keep the subscription from now on."""
        if self._until is None:
            self._subscription.is_wanted = True
            self._start()
        self._wake()

    def close(self, last: Callable[[], Request[bool]] | None = None) -> Promise[None]:
        """Send ``last`` requests, if any, until one is answered by True, and end the thread."""
        if self._until is None:
            if last is not None and self._threads:
                self._ask_last(last)
            self._until = self._clock.now() + self._timeout
            if not self._threads:
                self._end()
        self._wake()
        return self._ended

    def _ask_last(self, last: Callable[[], Request[bool]]) -> None:
        def answered(done: Promise[bool]) -> None:
            if done.exception() is None and not done.result():
                self._ask_last(last)

        request = last()
        request.promise.add_done_callback(answered)
        self._asked.append(request)

    def _start(self) -> None:
        if not self._threads:
            threading.Thread(target=self._serve, name="coordlock-redis", daemon=True).start()

    # What the thread does

    def _serve(self) -> None:
        THREAD.must_not_wait = True
        self._threads.append(threading.current_thread())
        if self._threads[0] is not threading.current_thread():
            return
        try:
            while not self._is_over():
                self._turn()
        except BaseException as error:
            # The client learns of no departure now, so its heartbeats must not keep its session.
            self.context.failure = f"the client's thread failed: {type(error).__name__}: {error}"
            log.exception("the thread of a Redis client failed")
        finally:
            self._end()

    def _is_over(self) -> bool:
        if self._until is None:
            return False
        return (
            self._ended.done()
            or not (self._asked or self._slots)
            or self._clock.now() >= self._until
        )

    def _end(self) -> None:
        self._until = self._until or 0.0
        refusal = self._refusal()
        self._drop(refusal)
        self._subscription.drop(refusal.reason, is_final=True)
        self._woken.close()
        self._waking.close()
        self._ended.resolve(None)
        self._refuse()

    def _refuse(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._asked.pop(0).promise.fail(self._refusal())

    def _refusal(self) -> BackendError:
        if self.context.failure:
            return SessionLost(SERVICE, self.context.failure)
        return client_closed()

    def _turn(self) -> None:
        if self._until is None:
            self._subscription.connect_when_due(self._servers)
            other, connection = self._subscription.connection, self.connection
            if other is not None and connection is not None and other.run != connection.run:
                # What leaves there is not told here.
                self._drop(BackendUnavailable(SERVICE, "the client has moved to another server"))
        self._flush()
        if self._asked:
            self._send()
            self._flush()
        self._wait()

    def _flush(self) -> None:
        """Send what could not be sent at once, or give up a connection that failed."""
        with self._lock:
            trouble, connection, data = self._trouble, self.connection, self._unsent
        if data and trouble is None and connection is not None:
            try:
                connection.socket.sendall(data)  # without the lock, because it may wait
                with self._lock:
                    self._unsent = self._unsent[len(data) :]
            except BROKEN as error:
                trouble = error
        if trouble is not None:
            self._drop(translate(trouble, connection.where if connection is not None else ""))

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is awake already, or has ended
            self._waking.send(b"\0")

    def _wait(self) -> None:
        """Wait for what comes, and act on it."""
        own, subscribed = self.connection, self._subscription.connection
        connections = [one for one in (own, subscribed) if one is not None]
        has_more = any(one.has_more() for one in connections)
        sockets = [self._woken, *(one.socket for one in connections)]
        readable = self._poll.ready(sockets, timeout=0.0 if has_more else self._patience())
        if self._woken in readable:
            self._woken.recv(4096)
        if own is not None and (own.socket in readable or own.has_more()):
            self._receive()
        if subscribed is not None and (subscribed.socket in readable or subscribed.has_more()):
            self._subscription.receive()
        self._subscription.check()
        slots = list(self._slots)
        if slots and self._clock.now() > slots[0][0].sent_at + self._allowed():
            self._drop(BackendUnavailable(SERVICE, f"no answer came in {self._timeout:g} s"))

    def _patience(self) -> float | None:
        if self._asked or self._unsent or self._trouble is not None:
            return 0.0
        due = [self._subscription.due(), self._until]
        if slots := list(self._slots):
            due.append(slots[0][0].sent_at + self._allowed())
        known = [when for when in due if when is not None]
        patience = max(0.0, min(known) - self._clock.now()) if known else None
        if self.connection is not None:  # other threads send, too, and do not wake this one
            patience = min(self._timeout / 2, self._timeout if patience is None else patience)
        return patience

    def _allowed(self) -> float:
        return self._timeout * 2 if self._replicas else self._timeout

    def _send(self) -> None:
        failure: BackendError | None = None
        try:
            # Another attempt to connect would only delay what fails without the subscription.
            if self.connection is None and not all(map(self._lacks_subscription, self._asked)):
                connection = self._servers.connect()
                self._known.clear()
                if (
                    self._subscription.connection is not None
                    and self._subscription.connection.run != connection.run
                ):
                    self._subscription.drop("the client has moved to another server")
                self.connection = connection
        except BackendError as error:
            failure = error
        batch = list(self._asked)
        refused = [one for one in batch if failure or self._lacks_subscription(one)]
        sent = [one for one in batch if one not in refused]
        self._asked[: len(batch)] = sent
        if sent:
            self._transmit(sent, asked=len(sent))
        for request in refused:
            request.promise.fail(failure or self._subscription.failure)

    def _lacks_subscription(self, request: Request[Any]) -> bool:
        return request.needs_subscription and not self._subscription.is_live

    def _transmit(
        self, batch: Sequence[Request[Any]], asked: int = 0, *, by_source: bool = False
    ) -> None:
        if (connection := self.connection) is None:
            return
        slots: list[_Slot] = []
        commands: list[bytes] = []
        if self._replicas:
            # A `WAIT` behind a script that the server does not know would hold up the next
            # attempt.
            by_source = by_source or any(one.name not in self._known for one in batch)
            self._known.update(one.name for one in batch)
        for request in batch:
            request.sent_at = self._clock.now()
            attempt = request.attempts = request.attempts + 1
            slots.append((request, attempt, False))
            commands.append(request.command(self.context, connection, by_source=by_source))
            if self._replicas and request.changes:
                slots.append((request, attempt, True))
                commands.append(packed("WAIT", self._replicas, int(self._timeout * 1000)))
        if not self._put(connection, slots, b"".join(commands), asked):
            for request in batch:
                request.attempts -= 1
                if not asked:  # nothing sends it again
                    request.promise.fail(translate(self._trouble or _INTERRUPTED, connection.where))

    def _receive(self) -> None:
        """Complete the requests whose answers have come."""
        if (connection := self.connection) is None:
            return
        try:
            found = connection.read()
        except BROKEN as error:
            self._drop(translate(error, connection.where))
            return
        for answer in found:
            if not self._slots:
                self._drop(translate(_STRAY, connection.where))
                return
            self._take(self._slots.popleft(), answer)
            if self.connection is not connection:
                return

    def _take(self, slot: _Slot, answer: Any) -> None:
        request, attempt, is_copies = slot
        if is_copies:
            if attempt == request.attempts:
                self._copied(request, answer)
        elif isinstance(answer, exceptions.NoScriptError) and request.attempts == 1:
            self._transmit([request], by_source=True)
        elif isinstance(answer, Exception):
            request.attempts += 1  # what comes of its `WAIT` does not matter
            where = self.connection.where if self.connection else ""
            request.promise.fail(translate(answer, where))
            if is_elsewhere(answer):
                self._drop(translate(answer, where))
        elif self._replicas and request.changes:
            self._held[id(request)] = answer
        else:
            request.answer(answer, self.context)

    def _copied(self, request: Request[Any], answer: Any) -> None:
        held = self._held.pop(id(request), None)
        if isinstance(answer, Exception):
            request.promise.fail(translate(answer))
        elif answer < self._replicas and held is not None and held[0] == b"ok":
            request.promise.fail(not_copied(answer, self._replicas))
        else:
            request.answer(held, self.context)

    def _drop(self, error: BackendError) -> None:
        """Give up the connection; what was sent has an unknown outcome."""
        with self._lock:
            connection, self.connection = self.connection, None
            slots, self._slots = self._slots, deque()
            self._held.clear()
            self._unsent, self._trouble = b"", None
        if connection is not None:
            connection.close()
        error = BackendUnavailable(SERVICE, error.reason)
        for request, _, _ in slots:
            request.promise.fail(error)


def not_copied(count: int, wanted: int) -> BackendUnavailable:
    """Why something that the primary has done does not count."""
    return BackendUnavailable(
        SERVICE, f"{count} of the {wanted} replicas that wait_replicas wants have it"
    )
