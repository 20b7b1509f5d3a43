"""What a lock of several names claims of each. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from coordlock.errors import InvalidName
from coordlock.model.claim import AnyClaim, Convertible, Mode, Permit
from coordlock.model.names import check_name

__all__ = ["merged", "of_path"]


def merged(wanted: Iterable[tuple[str, AnyClaim]]) -> dict[str, AnyClaim]:
    """The claim of each name, in the order of their first mention.

    A name that is given in several modes is claimed in the weakest that contains them all. Raises
    `InvalidName`, and ValueError for no names, for a semaphore that is given twice, and for one
    that is given as a lock, too.
    """
    claims: dict[str, AnyClaim] = {}
    for name, claim in wanted:
        if isinstance(claim, Convertible):
            raise ValueError(
                f"the lock {name!r} is convertible, and several locks at once are not: acquire it "
                "alone, or give its name with the strongest mode that is needed"
            )
        before = claims.get(check_name(name))
        if before is None:
            claims[name] = claim
        elif isinstance(before, Mode) and isinstance(claim, Mode):
            claims[name] = before.joined(claim)
        elif isinstance(before, Permit) and isinstance(claim, Permit):
            raise ValueError(
                f"the semaphore {name!r} is given twice: give it once, since one acquire takes one "
                "of its permits"
            )
        else:
            raise ValueError(
                f"{name!r} is given as {before} and as {claim}: a name is of one kind, so give the "
                "other one another name"
            )
    if not claims:
        raise ValueError("no names are given: give at least one, as in multi_lock(['a', 'b'])")
    return claims


def of_path(path: str, mode: Mode) -> dict[str, AnyClaim]:
    """The claims of a tree lock: ``mode`` on the node at ``path``, intentions on its ancestors.

    Those are CR for a mode that reads below them, CW for one that writes, and NL for NL: Gray's IS
    and IX. Raises `InvalidName` for what is no path, such as ``/a``, ``a//b`` or ``a/../b``.
    """
    check_name(path)
    steps = path.split("/")
    if "" in steps or "." in steps or ".." in steps:
        raise InvalidName(
            path,
            "is no path in a tree of locks: write names with single slashes between them, as in "
            "'eu/orders/42', without '.' and '..'",
        )
    intention = {Mode.NL: Mode.NL, Mode.CR: Mode.CR, Mode.PR: Mode.CR}.get(mode, Mode.CW)
    ancestors = ("/".join(steps[:depth]) for depth in range(1, len(steps)))
    return {**dict.fromkeys(ancestors, intention), path: mode}
