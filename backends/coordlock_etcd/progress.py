"""Which of the client's own watches receive departures in order. No I/O.

The departure of another contender grants a waiter without a reading only if the waiter's own
departure would have arrived first. etcd sends what happens, in order, to all watches of a stream
that have caught up with the store. A watch that begins in the past catches up within 100 ms, at no
certain moment. Until then it may receive last what happened first. So the own watches must have
caught up; late watches on other contenders only delay a grant. Two things prove that an own watch
has caught up:

- The answer to the creation of a LATER watch carries a revision before the own watch's start. etcd
  files the watches of a stream one after another and looks at the store before it files each. So
  the own watch was filed when nothing had happened yet that it would have to catch up with. The
  answer to its own creation would not do: something may happen between the look and the filing.
- An event of the own watch. Where other programs write to etcd, the first proof seldom holds. Then
  the client creates the watch anew, from the contender's creation on and with that included. The
  first event is that creation, and comes at the moment at which the watch catches up.

Nothing shows in which order the deletions of one transaction come. Nor does anything show that
etcd's buffer of 128 answers for a stream was full, after which etcd goes on in any order: because a
client is slow, or much happens at once. So the watcher creates only a few watches anew at a time.
"""

from __future__ import annotations

from coordlock_etcd.watch import Watch

__all__ = ["Progress"]


class Progress:
    """What is known of the own watches on the current stream. Not safe for threads."""

    def __init__(self) -> None:
        self._behind: set[Watch] = set()
        #: Watches that were sent and may not have been filed in time, by id: in order of sending.
        self._sent: dict[int, Watch] = {}
        # The newest ids: of the watches sent, of the watches filed, and of a watch after which
        # perhaps no other is sent.
        self._newest = self._filed = self._alone = 0

    def __contains__(self, watch: Watch) -> bool:
        """Whether ``watch``, an own one, is known to have caught up."""
        return watch not in self._behind

    def sent(self, watch: Watch) -> None:
        """``watch`` is on its way, as ``watch.id``, from ``watch.sent`` on."""
        self._newest = watch.id
        if watch.own:
            self._behind.add(watch)
            if watch.sent > watch.order:  # else it receives its creation
                self._sent[watch.id] = watch

    def created(self, id: int, revision: int) -> list[Watch]:
        """The watch ``id`` is filed; the earlier watches that may have been filed too late.

        ``revision`` is where etcd found the store before it filed ``id``. The returned watches must
        begin at their contenders' creation to be known to have caught up.
        """
        late = []
        while self._sent and (first := next(iter(self._sent))) < id:
            watch = self._sent.pop(first)
            if 0 < revision < watch.sent:
                self._behind.discard(watch)
            else:
                late.append(watch)
        self._filed = id
        return late

    def joined(self, shared: Watch) -> None:
        """Another waiter shares ``shared``, which was sent before.

        So perhaps no watch is sent after the one on the waiter's own contender.
        """
        if self._sent.get(self._newest) is not shared:
            self._alone = self._newest

    def resent(self) -> None:
        """The last watch sent had been sent before, so perhaps no other is sent after it."""
        self._alone = self._newest

    def alone(self) -> Watch | None:
        """An own watch that has been filed, and no later watch could show that it was in time.

        Then a watch must be sent for that alone; see `witness`.
        """
        if self._alone == self._newest <= self._filed:
            return self._sent.get(self._alone)
        return None

    def witness(self, id: int) -> None:
        """A watch is on its way, as ``id``, only for the answer to its creation."""
        self._newest = id

    def told(self, watch: Watch) -> None:
        """An event of ``watch`` has come."""
        self._behind.discard(watch)

    def unsent(self, watch: Watch) -> None:
        """``watch`` is on no stream, but will be."""
        self._sent.pop(watch.id, None)
        if watch.own:
            self._behind.add(watch)

    def ended(self, watch: Watch) -> None:
        """``watch`` is no more."""
        self._sent.pop(watch.id, None)
        self._behind.discard(watch)

    def clear(self) -> None:
        """All watches have ended."""
        self._sent.clear()
        self._behind.clear()
