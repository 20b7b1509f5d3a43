"""Contenders as znodes: their names, their order, and what they hold. Pure: no I/O, no kazoo.

A contender's znode is ``<root>/<escaped lock name>/<stem><sequence>``. Its stem holds its id and a
marker for its claim, as ``<id>__pw__lock__``: kazoo's recipes look for a text right before the
sequence. `curator` has the other styles.

A recipe takes each contender for a writer, for a reader, or for none of its own. The words in the
stem are chosen so that the recipe is at least as careful as coordlock's own matrix:

======= ============ ============= ===========================================
claim   word before  taken for a   those that conflict with it by coordlock's
                                   matrix
======= ============ ============= ===========================================
EX                   writer        writers, readers
EX       ``ex``      writer        writers, readers
PW      ``pw``       writer        writers, readers
CW      ``cw``       writer        writers, readers
PR                   reader        writers
CR      ``cr``       reader        writers
NL      ``nl``       none          none
permits ``permitN``  writer        all: a semaphore is not a lock
any     convertible  writer        what the mode of the moment conflicts with
======= ============ ============= ===========================================

InterProcessMutex knows no readers, and waits for all but ``nl``. LeaderLatch knows no readers
either, and passes over them. The one gap is kazoo's own: its plain Lock ignores readers, those of
kazoo's ReadLock too. Where readers and writers share a path, kazoo's users need WriteLock.

``ex`` tells that the data of the node never change, but in the transaction that deletes it: see
`announces_release`.

In the other direction coordlock reads all styles, whichever it writes: the nodes of Lock,
WriteLock, InterProcessMutex and Curator's write lock count as EX, those of read locks as PR.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Final, Literal, get_args

from coordlock.model.claim import AnyClaim, Convertible, Mode, parse_marker
from coordlock.model.contender import Contender, Entry, Owner
from coordlock.model.names import escape
from coordlock_zookeeper import curator

__all__ = [
    "STYLES",
    "Layout",
    "Style",
    "announces_release",
    "contender",
    "in_order",
    "is_spent",
    "nearest",
    "sequence_of",
    "session_name",
    "stem",
]

Style = Literal["kazoo", "curator", "curator-rw", "curator-latch"]
STYLES: Final[tuple[Style, ...]] = get_args(Style)

_MARKERS: Final = {
    Mode.NL: "nl",
    Mode.CR: "cr__rlock",
    Mode.CW: "cw__lock",
    Mode.PR: "rlock",
    Mode.PW: "pw__lock",
    Mode.EX: "lock",
}
_PASSES_ON: Final = "ex__lock"
_MODES: Final = {marker: mode for mode, marker in _MARKERS.items()} | {_PASSES_ON: Mode.EX}

_PASSING: Final = re.compile(
    rf"(?:[0-9a-f]{{32}}__ex__lock__|{curator.ANNOUNCES_RELEASE})[0-9]{{10}}"
)

_ORDER: Final = attrgetter("order")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a client's queues are, how its contenders are named, and what nodes tell it.

    Attributes:
        root: the path under which the queues are; "" is the top.
        style: see above.
    """

    root: str
    style: Style = "kazoo"

    def queue(self, name: str) -> str:
        """The path of a queue's znode."""
        return f"{self.root}/{escape(name)}"

    def prefix(self, entry: Entry) -> str:
        """The path of a contender's znode, less the sequence that the server appends."""
        name = stem(entry.id, entry.claim, self.style, announces_release=not entry.publishes)
        return f"{self.queue(entry.queue)}/{name}"

    def read(self, contender: Contender, data: bytes | None, stat: Any) -> Contender:
        """``contender`` with what its node tells."""
        value = Owner.published(data or b"")
        is_convertible = isinstance(contender.claim, Convertible)
        return replace(
            contender,
            claim=Convertible.decode(value) if is_convertible else contender.claim,
            token=int(stat.czxid),
            session=session_name(stat.ephemeralOwner),
            owner=Owner.decode(data or b""),
            value=value,
            version=stat.version + 1,
        )


def stem(
    id: str, claim: AnyClaim, style: Style = "kazoo", *, announces_release: bool = False
) -> str:
    """The name of a contender's znode, less the sequence that the server appends.

    Where it ``announces_release`` and is exclusive, the name says that: see the function of this
    name.
    """
    marker = _MARKERS[claim] if isinstance(claim, Mode) else f"{claim.marker}__lock"
    if announces_release and claim is Mode.EX:
        marker = _PASSES_ON
    if style == "kazoo":
        return f"{id}__{marker}__"
    return curator.stem(id, marker, style)


def sequence_of(child: str) -> int | None:
    """The sequence that ``child`` ends in, its place in the queue; None: it is no contender."""
    # From a counter that has reached its end the server takes others, too: see `is_spent`.
    end = child[-10:]
    return int(end) if len(end) == 10 and end.isascii() and end.isdigit() else None


def is_spent(sequence: int) -> bool:
    """Whether a parent's counter has reached its end, so that the sequence tells no order any more.

    A ZooKeeper 3.8 that has given out 2147483647 gives it out again, to every later create, or
    negative ones to creates that overlap. Only smaller sequences tell positions in a queue.
    """
    return not 0 <= sequence < 2**31 - 1


def announces_release(child: str) -> bool:
    """Whether a change of the data of the znode ``child`` tells that it has passed its lock on.

    Then it stood first in its queue, and the transaction that changed its data has deleted it. A
    deletion alone does not tell whether those before it have left, too.
    """
    return _PASSING.fullmatch(child) is not None


def contender(parent: str, child: str) -> Contender:
    """The contender that ``child``, which has a sequence, stands for.

    An unknown marker counts as exclusive.
    """
    id, claim = _read(child[:-10])
    return Contender(
        id=child if claim is None else id,
        key=f"{parent}/{child}",
        claim=claim or Mode.EX,
        order=int(child[-10:]),
    )


def in_order(parent: str, children: Sequence[str]) -> list[Contender]:
    """The contenders among ``children``, in their order."""
    return sorted(filter(None, map(partial(_listed, parent), children)), key=_ORDER)


@lru_cache(maxsize=10_000)  # the lists of a queue show mostly the same
def _listed(parent: str, child: str) -> Contender | None:
    return None if sequence_of(child) is None else contender(parent, child)


def nearest(
    queue: Sequence[Contender], upto: Contender | None, *, conflicting: bool = False
) -> tuple[tuple[Contender, ...], int]:
    """The contenders of ``queue``, and how many are left out before the first.

    All of them, or, given ``upto``, its window and itself if it is there; with ``conflicting``, all
    that may be in its way in place of the window.
    """
    if upto is None:
        return tuple(queue), 0
    earlier = bisect_left(queue, upto.order, key=_ORDER)
    omitted = 0 if conflicting else max(0, earlier - upto.claim.window)
    mine = upto.claim
    harmless = (
        [mode for mode in Mode if not mine.conflicts(mode)]
        if conflicting and isinstance(mine, Mode)
        else []
    )
    listed = [
        # Another one with its id was left behind by a lost attempt.
        replace(other, id=other.key) if other.id == upto.id else other
        for other in queue[omitted:earlier]
        if other.claim not in harmless
    ]
    end = bisect_right(queue, upto.order, key=_ORDER)  # see `curator.is_shared_position`
    if any(other.key == upto.key for other in queue[earlier:end]):
        listed.append(upto)
    return tuple(listed), omitted


@lru_cache(maxsize=256)  # kept once for all contenders of a client
def session_name(number: int) -> str:
    """A session's id as ZooKeeper's tools show it; empty for none."""
    # The server's number is signed; its tools show the bits.
    return f"{number % 2**64:#x}" if number else ""


def _read(stem: str) -> tuple[str, AnyClaim | None]:
    """The id and the claim that a stem of any style tells; without a claim, it has neither."""
    if found := curator.read(stem):
        return found[0], _claim(found[1])
    id, _, rest = stem.partition("__")
    return id, _claim(rest.removesuffix("__")) if rest.endswith("__") else None


def _claim(marker: str) -> AnyClaim | None:
    if marker in _MODES:
        return _MODES[marker]
    claim = parse_marker(marker.removesuffix("__lock"))
    return None if isinstance(claim, Mode) or not marker.endswith("__lock") else claim
