"""What contenders claim as they appear."""

from __future__ import annotations

from coordlock.model.claim import AnyClaim, Claim, Convertible, Mode

__all__ = ["at_first"]


def at_first(claim: AnyClaim) -> Claim:
    """What the name of a new contender tells.

    Of a convertible one it tells no mode. In all runs these begin as shared ones, and that one of
    them has become exclusive is for the data to show that it protects.
    """
    return Mode.PR if isinstance(claim, Convertible) else claim
