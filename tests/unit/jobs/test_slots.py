"""Slots: what is one, and how it is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlock.jobs.slots import loaded, parsed, shown, slot_of, stored

BERLIN = ZoneInfo("Europe/Berlin")


def test_an_instant_is_the_same_slot_in_every_zone() -> None:
    here = datetime(2026, 11, 22, 3, tzinfo=BERLIN)
    assert slot_of(here) == slot_of(here.astimezone(UTC))
    assert shown(slot_of(here)) == "2026-11-22T02:00:00Z"
    assert slot_of(here).tzinfo is UTC  # type: ignore[union-attr]


@pytest.mark.parametrize("slot", [True, 1.0, "2026-11-22", None])
def test_what_is_no_slot_is_refused(slot: object) -> None:
    with pytest.raises(TypeError, match="aware datetime or an int"):
        slot_of(slot)


def test_an_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        slot_of(datetime(2026, 11, 22))
    with pytest.raises(ValueError, match="64 bits"):
        slot_of(2**63)


@given(st.integers(-(2**63), 2**63 - 1) | st.datetimes(timezones=st.just(UTC)))
def test_a_slot_is_what_was_stored_and_shown(slot: int | datetime) -> None:
    assert loaded(stored(slot)) == slot
    assert parsed(shown(slot)) == slot


def test_a_text_names_an_instant_by_its_own_offset_or_by_the_zone() -> None:
    wanted = datetime(2026, 11, 22, 2, tzinfo=UTC)
    assert parsed("2026-11-22T03:00+01:00") == wanted
    assert parsed("2026-11-22T03:00", BERLIN) == wanted
    assert parsed("2026-11-22T02:00Z", BERLIN) == wanted
    assert parsed("17") == 17
    with pytest.raises(ValueError, match=r"no time zone.*as in 2026-11-22T03:00Z"):
        parsed("2026-11-22T03:00")
    with pytest.raises(ValueError, match="is no slot"):
        parsed("tomorrow")


def test_of_an_hour_that_comes_twice_a_text_means_the_first() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=2)))
    assert parsed("2026-10-25T02:30", BERLIN) == first


def test_a_time_that_clocks_leave_out_is_refused() -> None:
    with pytest.raises(ValueError, match="does not exist"):
        parsed("2026-03-29T02:30", BERLIN)


@pytest.mark.parametrize("text", ["0001-01-01T00:00+05:00", "9999-12-31T23:59-05:00"])
def test_an_instant_that_utc_has_no_year_for_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no year from 1 to 9999"):
        parsed(text)
