"""The thread that receives answers and news, each over a connection of its own.

It sends what the calling threads could not send themselves.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from redis import exceptions

from coordlock.errors import BackendError, BackendUnavailable, SessionLost
from coordlock.runtime.clock import Clock
from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS
from coordlock.runtime.promise import Promise, failed
from coordlock_redis.errors import SERVICE, client_closed, is_elsewhere, translate
from coordlock_redis.news import News
from coordlock_redis.poller import Poller
from coordlock_redis.requests import Header, Request
from coordlock_redis.servers import BROKEN, Link, Servers, packed

__all__ = ["Connection"]

T = TypeVar("T")

log = Log("coordlock")

_STRAY: Final = OSError("the server sent an answer to no request")
#: By a signal handler.
_INTERRUPTED: Final = OSError("a request was interrupted")
#: The next answer belongs to this attempt of that request, or says how many replicas have it.
_Slot = tuple[Request[Any], int, bool]


class Connection:
    """All requests of a client but heartbeats. Its thread runs from the first one until `close`.

    Requests go out as they come, without waiting for the answers to those before.

    Args:
        replicas: how many must have what a request changes.
    """

    def __init__(
        self, servers: Servers, header: Header, news: News, clock: Clock, replicas: int = 0
    ) -> None:
        #: The connection, if there is one.
        self.link: Link | None = None
        #: Nothing is called where a thread other than that for I/O holds it. So no signal handler
        #: runs there, which might itself ask for something.
        self._lock: Final = threading.RLock()
        #: Why the connection must be given up; None while it works.
        self._trouble: Exception | None = None
        self.header: Final = header
        self._servers: Final = servers
        self._news: Final = news
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
        self._poller: Final = Poller()
        self._wake: Final = self._poller.wake
        news.wake = self._wake

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
        link = self.link
        if link is None or not link.is_direct or self._replicas or request.needs_news:
            return False
        data = request.command(self.header, link)
        request.sent_at, request.attempts = self._clock.now(), 1
        if self._put(link, [(request, 1, False)], data):
            return True
        request.attempts = 0
        return False

    def _put(self, link: Link, slots: list[_Slot], data: bytes, asked: int | None = None) -> bool:
        """Send ``data`` for ``slots``, or keep for the thread for I/O what can't be sent at once.

        ``asked`` is how many of the requests that wait for the thread for I/O these are, from the
        first. Returns False and sends nothing if others come first or the connection is gone.
        """
        trouble: Exception | None = None
        written: list[int] = []
        # Writes when it is added to `written`: what was written is known before a handler runs.
        write = map(os.write, (link.number,), (data,)) if link.is_direct else ()
        with self._lock:
            if link is not self.link or self._trouble is not None:
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
        """Hear the news from now on."""
        if self._until is None:
            self._news.is_wanted = True
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
        self._threads.append(threading.current_thread())
        if self._threads[0] is not threading.current_thread():
            return
        try:
            while not self._is_over():
                self._turn()
        except BaseException as error:
            # The client hears of no departure now, so its heartbeats must not keep its session.
            self.header.failure = f"the client's thread failed: {type(error).__name__}: {error}"
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
        self._news.drop(refusal.reason, is_final=True)
        self._poller.close()
        self._ended.resolve(None)
        self._refuse()

    def _refuse(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._asked.pop(0).promise.fail(self._refusal())

    def _refusal(self) -> BackendError:
        if self.header.failure:
            return SessionLost(SERVICE, self.header.failure)
        return client_closed()

    def _turn(self) -> None:
        if self._until is None:
            self._news.connect_when_due(self._servers)
            news, link = self._news.link, self.link
            if news is not None and link is not None and news.run != link.run:
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
            trouble, link, data = self._trouble, self.link, self._unsent
        if data and trouble is None and link is not None:
            try:
                link.socket.sendall(data)  # without the lock, because it may wait
                with self._lock:
                    self._unsent = self._unsent[len(data) :]
            except BROKEN as error:
                trouble = error
        if trouble is not None:
            self._drop(translate(trouble, link.where if link is not None else ""))

    def _wait(self) -> None:
        both = (self.link, self._receive), (self._news.link, self._news.receive)
        for link, receive in both:
            if link is not None and link.leave is None:
                self._poller.add(link, receive)
                if link.has_more():
                    receive()
        self._poller.wait(self._patience())
        self._news.check()
        slots = list(self._slots)
        if slots and self._clock.now() > slots[0][0].sent_at + self._allowed():
            self._drop(BackendUnavailable(SERVICE, f"no answer came in {self._timeout:g} s"))

    def _patience(self) -> float | None:
        if self._asked or self._unsent or self._trouble is not None:
            return 0.0
        due = [self._news.due(), self._until]
        if slots := list(self._slots):
            due.append(slots[0][0].sent_at + self._allowed())
        known = [when for when in due if when is not None]
        patience = max(0.0, min(known) - self._clock.now()) if known else None
        if self.link is not None:  # other threads send, too, and do not wake this one
            patience = min(self._timeout / 2, self._timeout if patience is None else patience)
        return patience

    def _allowed(self) -> float:
        return self._timeout * 2 if self._replicas else self._timeout

    def _send(self) -> None:
        failure: BackendError | None = None
        try:
            # Another attempt to connect would only delay what fails because the news have none.
            if self.link is None and not all(map(self._is_deaf, self._asked)):
                link = self._servers.connect()
                self._known.clear()
                if self._news.link is not None and self._news.link.run != link.run:
                    self._news.drop("the client has moved to another server")
                self.link = link
        except BackendError as error:
            failure = error
        batch = list(self._asked)
        refused = [one for one in batch if failure or self._is_deaf(one)]
        sent = [one for one in batch if one not in refused]
        self._asked[: len(batch)] = sent
        if sent:
            self._transmit(sent, asked=len(sent))
        for request in refused:
            request.promise.fail(failure or self._news.failure)

    def _is_deaf(self, request: Request[Any]) -> bool:
        return request.needs_news and not self._news.is_live

    def _transmit(
        self, batch: Sequence[Request[Any]], asked: int = 0, *, by_source: bool = False
    ) -> None:
        if (link := self.link) is None:
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
            commands.append(request.command(self.header, link, by_source=by_source))
            if self._replicas and request.changes:
                slots.append((request, attempt, True))
                commands.append(packed("WAIT", self._replicas, int(self._timeout * 1000)))
        if not self._put(link, slots, b"".join(commands), asked):
            for request in batch:
                request.attempts -= 1
                if not asked:  # nothing sends it again
                    request.promise.fail(translate(self._trouble or _INTERRUPTED, link.where))

    def _receive(self) -> None:
        """Complete the requests whose answers have come."""
        if (link := self.link) is None:
            return
        try:
            found = link.read()
        except BROKEN as error:
            self._drop(translate(error, link.where))
            return
        for answer in found:
            if not self._slots:
                self._drop(translate(_STRAY, link.where))
                return
            self._take(self._slots.popleft(), answer)
            if self.link is not link:
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
            where = self.link.where if self.link else ""
            request.promise.fail(translate(answer, where))
            if is_elsewhere(answer):
                self._drop(translate(answer, where))
        elif self._replicas and request.changes:
            self._held[id(request)] = answer
        else:
            request.answer(answer, self.header)

    def _copied(self, request: Request[Any], answer: Any) -> None:
        held = self._held.pop(id(request), None)
        if isinstance(answer, Exception):
            request.promise.fail(translate(answer))
        elif answer < self._replicas and held is not None and held[0] == b"ok":
            request.promise.fail(not_copied(answer, self._replicas))
        else:
            request.answer(held, self.header)

    def _drop(self, error: BackendError) -> None:
        """Give up the connection; what was sent has an unknown outcome."""
        with self._lock:
            link, self.link = self.link, None
            slots, self._slots = self._slots, deque()
            self._held.clear()
            self._unsent, self._trouble = b"", None
        if link is not None:
            link.close()
        error = BackendUnavailable(SERVICE, error.reason)
        for request, _, _ in slots:
            request.promise.fail(error)


def not_copied(count: int, wanted: int) -> BackendUnavailable:
    """Why something that the primary has done does not count."""
    return BackendUnavailable(
        SERVICE, f"{count} of the {wanted} replicas that wait_replicas wants have it"
    )
