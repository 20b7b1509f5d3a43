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
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
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
    "has_id",
    "is_spent",
    "nearest",
    "ordered_names",
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

#: What the server appends. (From a counter that has reached its end it takes negative numbers, too:
#: see `is_spent`.)
_SEQUENCE: Final = re.compile(r"[0-9]{10}\Z")


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


def has_id(child: str, id: str) -> bool:
    """Whether the znode ``child`` was made for the entry ``id``."""
    return child.startswith((f"{id}__", f"_c_{id}-"))


def sequence_of(child: str) -> int | None:
    """The sequence that ``child`` ends in, its place in the queue; None: it is no contender."""
    match = _match(child)
    return None if match is None else int(match[0])


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


def ordered_names(children: Sequence[str]) -> list[tuple[int, str]]:
    """The contenders among ``children``, which have a sequence: (order, name), in order."""
    return sorted([found for child in children if (found := _position(child)) is not None])


@lru_cache(maxsize=2048)  # the lists of a queue show mostly the same
def _position(child: str) -> tuple[int, str] | None:
    sequence = sequence_of(child)
    return None if sequence is None else (sequence, child)


def contender(parent: str, child: str, *, only: str = "") -> Contender:
    """The contender that ``child``, which has a sequence, stands for.

    An unknown marker counts as exclusive. Where ``only`` names the znode that alone may bear its
    id, another one with that id, left behind by a lost attempt, is called by its full name.
    """
    match = _match(child)
    assert match is not None
    id, claim = _read(child[: match.start()])
    if claim is None or (only and child != only and has_id(only, id)):
        id = child
    return Contender(
        id=id,
        key=f"{parent}/{child}",
        claim=claim or Mode.EX,
        order=int(match[0]),
    )


def nearest(
    parent: str,
    positions: Sequence[tuple[int, str]],
    upto: Contender | None,
    *,
    conflicting: bool = False,
) -> tuple[tuple[Contender, ...], int]:
    """The contenders of a `ordered_names`, and how many are left out before the first.

    All of them, or, given ``upto``, its window and itself if it is there; with ``conflicting``, all
    that may be in its way in place of the window. Only names that are listed are parsed, so that a
    long queue costs little.
    """
    if upto is None:
        return tuple(contender(parent, child) for _, child in positions), 0
    own = upto.key.rpartition("/")[2]
    earlier = bisect_left(positions, (upto.order, ""))
    omitted = 0 if conflicting else max(0, earlier - upto.claim.window)
    names = [child for _, child in positions[omitted:earlier]]
    if conflicting and isinstance(upto.claim, Mode):
        harmless = _harmless(upto.claim)
        names = [name for name in names if _marker(name) not in harmless]
    listed = [contender(parent, child, only=own) for child in names]
    position = bisect_left(positions, (upto.order, own))
    if positions[position : position + 1] == [(upto.order, own)]:
        listed.append(upto)
    return tuple(listed), omitted


@lru_cache(maxsize=2048)  # as of `_position`
def _marker(child: str) -> str:
    """What stands between the id and the sequence; only of names in kazoo's style."""
    return child[max(0, child.find("__")) : -10]


@lru_cache
def _harmless(mine: Mode) -> frozenset[str]:
    """What stands between the id and the sequence of our contenders whose mode is not in my way.

    In kazoo's style, and of those that keep their mode.
    """
    return frozenset(f"__{_MARKERS[mode]}__" for mode in Mode if not mine.conflicts(mode))


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


def _match(child: str) -> re.Match[str] | None:
    return _SEQUENCE.search(child, max(0, len(child) - 10))
