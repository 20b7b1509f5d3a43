"""The thread that sends requests, and hears the news, each over a connection of its own."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from redis import exceptions

from coordlock.errors import BackendError, BackendUnavailable
from coordlock.runtime.clock import Clock
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, failed, resolved
from coordlock.runtime.receiving import offer
from coordlock_redis.errors import SERVICE, client_closed, is_elsewhere, translate
from coordlock_redis.news import News
from coordlock_redis.receiving import Receiving, Source
from coordlock_redis.requests import Header, Request
from coordlock_redis.servers import Link, Servers, packed

__all__ = ["Connection"]

T = TypeVar("T")

log = Log("coordlock")

#: By a signal handler that raised.
_INTERRUPTED: Final = BackendUnavailable(SERVICE, "a request or its answer was interrupted")
#: What reading a connection raises.
_BROKEN: Final = (exceptions.RedisError, OSError, ValueError, AttributeError)


class _Slot:
    """The next answer belongs to this request; ``is_copies`` for how many replicas have it."""

    __slots__ = ("attempt", "is_copies", "request", "sender")

    def __init__(self, request: Request[Any], *, is_copies: bool = False) -> None:
        self.request: Final = request
        self.attempt: Final = request.attempts
        self.is_copies: Final = is_copies
        self.sender: Final = threading.get_ident()


class Connection:
    """All requests of a client but heartbeats. Its thread runs from the first one until `close`.

    Requests go out as they come, without waiting for the answers to those before.

    Args:
        replicas: how many must have what a request changes.
    """

    def __init__(
        self, servers: Servers, header: Header, news: News, clock: Clock, replicas: int = 0
    ) -> None:
        self.header: Final = header
        self._servers: Final = servers
        self._news: Final = news
        self._clock: Final = clock
        self._replicas: Final = replicas
        self._timeout: Final = servers.timeout
        self._pid: Final = os.getpid()
        self._lock: Final = threading.RLock()
        self._asked: deque[Request[Any]] = deque()
        self._slots: deque[_Slot] = deque()
        #: What has come for the first of them, and was not taken yet.
        self._answers: deque[Any] = deque()
        self._held: dict[int, Any] = {}
        self._link: Link | None = None
        #: What could not be sent at once, and what went wrong meanwhile.
        self._unsent = b""
        self._trouble: BackendError | None = None
        #: The connection that a thread is reading from.
        self._reading: Link | None = None
        #: The scripts that were sent to it.
        self._known: set[str] = set()
        self._thread: threading.Thread | None = None
        self._ended: Promise[None] = Promise()
        #: When the thread ends, though answers are missing; None until `close`.
        self._until: float | None = None
        self._ear, self._bell = socket.socketpair()
        for end in (self._ear, self._bell):
            end.setblocking(False)
        self._selector: Final = selectors.DefaultSelector()
        self._selector.register(self._ear, selectors.EVENT_READ, self._ring)
        #: Whether it sees at once what another thread changes: one that is an object of the kernel.
        #: That of gevent may sleep for ever.
        self._is_shared: Final = hasattr(self._selector, "fileno")
        news.wake = self.wake
        self._answering: Final = self._receiving(self)
        self._hearing: Final = self._receiving(news)

    def _receiving(self, source: Source) -> Receiving:
        return Receiving(source, self._lock, self._selector, self.wake, self._clock)

    def ask(self, request: Request[T]) -> Promise[T]:
        """Send ``request``; its promise."""
        if os.getpid() != self._pid:  # the child of a fork shares the socket, and has no thread
            return failed(client_closed())
        with self._lock:
            if self._until is not None or sys.is_finalizing():
                return failed(client_closed())
            if self._sends_at_once(request):
                if self._asks_alone() and offer(self._answering.receive_own):
                    # Before it is sent, so that the answer does not wake the thread for I/O.
                    self._answering.begin()
                    if not offer(self._answering.receive_own):
                        # A signal handler has asked in between, and has used up the first offer.
                        self._answering.receive_own(lambda: True, 0.0)
                self._transmit([request])
                if not self._unsent and self._trouble is None:
                    return request.promise
            else:
                self._asked.append(request)
                self._start()
        self.wake()
        return request.promise

    def _sends_at_once(self, request: Request[Any]) -> bool:
        """Whether the calling thread sends it: then the thread for I/O need not be woken."""
        if self._link is None or self._asked or self._unsent or self._trouble is not None:
            return False
        return not (self._replicas or request.needs_news) and self._link.is_direct

    def _asks_alone(self) -> bool:
        """Whether it may read: no other thread waits for answers, which Ctrl-C could interrupt."""
        if not self._is_shared:
            return False
        me = threading.get_ident()
        return not self._slots or all(slot.sender == me for slot in self._slots)

    def await_news(self) -> None:
        """The calling thread may wait for news; then it hears them itself."""
        if self._is_shared:
            offer(self._hear)

    def _hear(self, is_done: Callable[[], bool], seconds: float) -> None:
        self._hearing.begin()
        self._hearing.receive_own(is_done, seconds)  # which ends what a signal handler has left

    def wake(self) -> None:
        """Let the thread look at what is to be done."""
        with contextlib.suppress(OSError):  # it is awake, or has ended
            self._bell.send(b"\0")

    def listen(self) -> None:
        """Hear the news from now on."""
        with self._lock:
            if self._until is None:
                self._news.is_wanted = True
                self._start()
        self.wake()

    def close(self, last: Request[Any] | None = None) -> Promise[None]:
        """Send the ``last`` request, if any, and end the thread."""
        with self._lock:
            if self._until is None:
                self._until = self._clock.now() + self._timeout
                if last is not None and self._thread is not None:
                    self._asked.append(last)
                if self._thread is None:
                    self._end()
                    return resolved(None)
        self.wake()
        return self._ended

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="coordlock-redis", daemon=True)
            thread.start()
            self._thread = thread

    # What the thread does

    def _serve(self) -> None:
        try:
            while not self._is_over():
                self._turn()
        except Exception:
            log.exception("the thread of a Redis client failed")
        finally:
            self._end()

    def _is_over(self) -> bool:
        with self._lock:
            if self._until is None:
                return False
            return not (self._asked or self._slots) or self._clock.now() >= self._until

    def _end(self) -> None:
        with self._lock:
            self._until = self._until or 0.0
        self._drop(client_closed())
        self._news.drop("the client is closed", is_final=True)
        while self._asked:
            self._asked.popleft().promise.fail(client_closed())
        self._selector.close()
        self._ear.close()
        self._bell.close()
        self._ended.resolve(None)

    def _turn(self) -> None:
        if self._until is None:
            self._news.drop_if_broken()
            self._news.connect_when_due(self._servers)
            news, link = self._news.link, self._link
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
            trouble, link, data = self._trouble, self._link, self._unsent
        if data and trouble is None and link is not None:
            try:
                link.socket.sendall(data)  # without the lock, because it may wait
                self._unsent = b""  # no other call has added to it
            except _BROKEN as error:
                trouble = translate(error, link.where)
        if trouble is not None:
            self._drop(trouble)

    def _wait(self) -> None:
        both = self._answering, self._hearing
        for one in both:
            one.finish()
        for one in both:
            one.unselect()
        for one in both:
            one.select()
        for key, _ in self._selector.select(self._patience()):
            key.data()
        self._news.check()
        if self._slots and self._clock.now() > self._slots[0].request.sent_at + self._allowed():
            self._drop(BackendUnavailable(SERVICE, f"no answer came in {self._timeout:g} s"))

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            self._ear.recv(4096)

    def _patience(self) -> float | None:
        due = [self._news.due(), self._until]
        if self._slots:
            due.append(self._slots[0].request.sent_at + self._allowed())
        known = [when for when in due if when is not None]
        patience = max(0.0, min(known) - self._clock.now()) if known else None
        if self._link is not None:  # other threads send, too, and do not wake this one
            patience = min(self._timeout / 2, self._timeout if patience is None else patience)
        return patience

    def _allowed(self) -> float:
        return self._timeout * 2 if self._replicas else self._timeout

    def _send(self) -> None:
        failure: BackendError | None = None
        try:
            if self._link is None:
                link = self._servers.connect()
                self._known.clear()
                if self._news.link is not None and self._news.link.run != link.run:
                    self._news.drop("the client has moved to another server")
                self._link = link
        except BackendError as error:
            failure = error
        with self._lock:  # so that no other thread sends a later request first
            batch = list(self._asked)
            self._asked.clear()
            refused = [
                one for one in batch if failure or (one.needs_news and not self._news.is_live)
            ]
            self._transmit([one for one in batch if one not in refused])
        for request in refused:
            request.promise.fail(failure or self._news.failure)

    def _transmit(self, batch: Sequence[Request[Any]], *, by_source: bool = False) -> None:
        """Send ``batch``, or keep what can't be sent at once for the thread."""
        with self._lock:
            if (link := self._link) is None or not batch:
                return
            commands: list[tuple[Any, ...]] = []
            if self._replicas:
                # A `WAIT` behind a script that the server does not know would hold up the next
                # attempt.
                by_source = by_source or any(one.name not in self._known for one in batch)
                self._known.update(one.name for one in batch)
            slots: list[_Slot] = []
            for request in batch:
                request.sent_at = self._clock.now()
                request.attempts += 1
                slots.append(_Slot(request))
                commands.append(request.command(self.header, link, by_source=by_source))
                if self._replicas and request.changes:
                    slots.append(_Slot(request, is_copies=True))
                    commands.append(("WAIT", self._replicas, int(self._timeout * 1000)))
            if self._trouble is not None:
                self._slots += slots  # they fail with the connection
                return
            data = self._unsent + packed(commands)
            # If a signal handler raises here, nobody knows whose the next answer is.
            self._trouble = _INTERRUPTED
            self._slots += slots
            try:
                self._unsent = data[link.send_now(data) :]
            except _BROKEN as error:
                self._trouble = translate(error, link.where)
            else:
                self._trouble = None

    @property
    def link(self) -> Link | None:
        """The connection for requests."""
        return self._link

    @property
    def is_left(self) -> bool:
        """Whether an answer was read and not taken, or something went wrong."""
        return bool(self._answers or self._trouble or self._reading)

    def give_up(self) -> None:
        """Let the thread for I/O give up the connection."""
        self._trouble = _INTERRUPTED

    def read(self) -> None:
        """Read the answers that have come.

        Without the lock: a signal handler that strikes here may use the client, and waits for the
        thread for I/O, which needs the lock.
        """
        link = self._link
        if link is None or self._trouble is not None:
            return
        if self._reading is link:  # a signal handler has ended that, or is in the middle of it
            self.give_up()  # because nobody knows whose the next answer is
            return
        self._reading = link
        trouble: BackendError | None = None
        try:
            try:
                found = link.read()
            except _BROKEN as error:
                found, trouble = [], translate(error, link.where)
            with self._lock:
                if link is self._link:
                    self._answers += found
                    if trouble is None and len(self._answers) > len(self._slots):
                        problem = OSError("the server sent an answer to no request")
                        trouble = translate(problem, link.where)
                    if trouble is not None:
                        self._trouble = trouble
                self._reading = None
        except BaseException:
            self.give_up()
            raise

    def take(self, is_done: Callable[[], bool], *, is_own: bool) -> None:
        """Complete the requests whose answers were read, until ``is_done``.

        A thread that waits leaves errors to the thread for I/O, which alone sends requests again
        and gives up the connection.
        """
        while not is_done():
            with self._lock:
                if not self._answers:
                    return
                slot, answer = self._slots[0], self._answers[0]
            if is_own and isinstance(answer, Exception):
                return
            self._take(slot, answer)
            # Not before: what a signal handler ends half-way is done again.
            with self._lock:
                if self._slots and self._slots[0] is slot:
                    # Where one raises in between, the next request would get this answer.
                    trouble, self._trouble = self._trouble, _INTERRUPTED
                    self._slots.popleft()
                    self._answers.popleft()
                    self._trouble = trouble

    def _take(self, slot: _Slot, answer: Any) -> None:
        request = slot.request
        if slot.is_copies:
            if slot.attempt == request.attempts:
                self._copied(request, answer)
        elif isinstance(answer, exceptions.NoScriptError) and request.attempts == 1:
            self._transmit([request], by_source=True)
        elif isinstance(answer, Exception):
            request.attempts += 1  # what comes of its `WAIT` does not matter
            where = self._link.where if self._link else ""
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
            link, self._link = self._link, None
            slots, self._slots = self._slots, deque()
            self._answers.clear()
            self._held.clear()
            self._unsent, self._trouble = b"", None
        if link is not None:
            link.close()
        error = BackendUnavailable(SERVICE, error.reason)
        for slot in slots:
            slot.request.promise.fail(error)


def not_copied(count: int, wanted: int) -> BackendUnavailable:
    """Why something that the primary has done does not count."""
    return BackendUnavailable(
        SERVICE, f"{count} of the {wanted} replicas that wait_replicas wants have it"
    )
