"""Slots: what tells the runs of a job apart, an instant or a number."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, Literal

__all__ = ["Kind", "Slot", "kind_of", "loaded", "parsed", "shown", "slot_of", "stored"]

#: An aware instant, in UTC once `slot_of` has seen it, or an integer.
Slot = datetime | int
Kind = Literal["instant", "integer"]

_INTEGER: Final = re.compile("-?[0-9]{1,19}")


def slot_of(slot: object) -> Slot:
    """``slot`` as it is kept: an instant in UTC, or an integer of 64 bits.

    Raises TypeError and ValueError that say what is accepted.
    """
    if isinstance(slot, datetime):
        if slot.utcoffset() is None:
            raise ValueError(
                f"slot {slot.isoformat()} has no time zone, so each host could take it for "
                "another instant: write its offset, as in 2026-11-22T03:00Z, or give it a tzinfo"
            )
        try:
            return slot.astimezone(UTC)
        except OverflowError:
            raise ValueError(f"slot {slot.isoformat()} is in no year from 1 to 9999") from None
    if type(slot) is not int:
        raise TypeError(
            f"slot must be an aware datetime or an int, not {slot!r}: the instant for which the "
            "run is scheduled, or its number"
        )
    if not -(2**63) <= slot < 2**63:
        raise ValueError("slot must fit in a signed integer of 64 bits")
    return slot


def kind_of(slot: Slot) -> Kind:
    """Which kind of slot it is. A job has slots of one kind."""
    return "integer" if isinstance(slot, int) else "instant"


def shown(slot: Slot) -> str:
    """The slot as a text, such as ``2026-11-22T02:00:00Z`` or ``17``."""
    return str(slot) if isinstance(slot, int) else slot.isoformat().replace("+00:00", "Z")


def parsed(text: str, zone: tzinfo | None = None) -> Slot:
    """The slot that ``text`` names; ``zone`` is for instants that name no offset of their own.

    Of an hour that comes twice it is the first one. Raises ValueError.
    """
    if _INTEGER.fullmatch(text):
        return slot_of(int(text))
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no slot: give an instant, such as 2026-11-22T03:00Z, or an integer"
        ) from None
    if instant.tzinfo is None and zone is not None:
        instant = instant.replace(tzinfo=zone)
        if instant.astimezone(UTC).astimezone(zone) != instant:
            raise ValueError(f"{text} does not exist in {zone}: clocks were set forward over it")
    return slot_of(instant)


def stored(value: Any) -> Any:
    """An instant as the records keep it; anything else is kept as it is."""
    return shown(value) if isinstance(value, datetime) else value


def loaded(value: Any) -> Slot:
    """What `stored` has made ``value`` of. Raises ValueError or TypeError for anything else."""
    return slot_of(datetime.fromisoformat(value) if isinstance(value, str) else value)
