"""Schedules: which instants they have, through the changes of clocks; and what is due."""

from __future__ import annotations

import itertools
import sys
import zoneinfo
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlock import Cron, Every
from coordlock.errors import MissingExtra
from coordlock.jobs.ledger import Ledger, Policy, State
from coordlock.jobs.schedule import due, latest
from coordlock.jobs.slots import Slot, shown

ONCE, LEAST = Policy.AT_MOST_ONCE, Policy.AT_LEAST_ONCE
HOUR = timedelta(hours=1)
moments = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))
schedules = st.sampled_from(
    [
        Every("15m"),
        Every("24h"),
        Cron("0 3 * * *", "Europe/Berlin"),
        Cron("30 2 * * *", "Europe/Berlin"),
        Cron("*/20 * * * *", "Australia/Lord_Howe"),
        Cron("15 1,2 * * 0", "America/New_York"),
    ]
)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def some(schedule: Cron, after: str, number: int) -> list[datetime]:
    return list(itertools.islice(schedule.after(utc(after)), number))


@given(schedules, moments)
def test_one_instant_follows_the_other(schedule: Every | Cron, moment: datetime) -> None:
    before, after = schedule.before(moment), next(schedule.after(moment))
    assert before <= moment < after
    assert next(schedule.after(before)) == after
    assert schedule.before(after) == after
    assert schedule.before(after - timedelta(seconds=1)) == before


def test_an_interval_begins_at_midnight() -> None:
    assert Every("6h").before(utc("2026-11-22 17:59:59")) == utc("2026-11-22 12:00")
    assert Every(86_400).before(utc("2026-11-22 17:59:59")) == utc("2026-11-22 00:00")


@pytest.mark.parametrize("interval", ["7m", "25h", 0, -3600, 0.5, "1.5s", float("nan")])
def test_an_interval_that_does_not_divide_the_day_is_refused(interval: float | str) -> None:
    with pytest.raises(ValueError, match=r"divide the day|interval"):
        Every(interval)


def test_a_fixed_time_that_clocks_leave_out_comes_right_after_the_gap() -> None:
    schedule = Cron("30 2 * * *", "Europe/Berlin")
    assert some(schedule, "2026-03-28 12:00", 2) == [
        utc("2026-03-29 01:00"),  # 03:00, for 02:30
        utc("2026-03-30 00:30"),
    ]
    assert schedule.before(utc("2026-03-29 01:10")) == utc("2026-03-29 01:00")


def test_a_fixed_time_that_comes_twice_counts_once() -> None:
    schedule = Cron("30 2 * * *", "Europe/Berlin")
    assert some(schedule, "2026-10-24 12:00", 2) == [
        utc("2026-10-25 00:30"),
        utc("2026-10-26 01:30"),
    ]
    # Also for a host that asks between the two, and after the second.
    assert schedule.before(utc("2026-10-25 01:10")) == utc("2026-10-25 00:30")
    assert schedule.before(utc("2026-10-25 01:40")) == utc("2026-10-25 00:30")


def test_every_hour_is_every_hour_that_passes() -> None:
    schedule = Cron("*/30 * * * *", "Europe/Berlin")
    for day in ("2026-10-24 22:00", "2026-03-28 22:00"):
        found = some(schedule, day, 12)
        assert [later - one for one, later in itertools.pairwise(found)] == [HOUR / 2] * 11


@pytest.mark.parametrize(
    ("expression", "zone"),
    [
        ("0 3 * *", "UTC"),
        ("0 0 3 * * *", "UTC"),
        ("61 3 * * *", "UTC"),
        ("0 3 31 2 *", "UTC"),
        ("0 3 * * *", "Europe/Atlantis"),
        ("0 3 * * *", "../etc/passwd"),
    ],
)
def test_what_is_no_schedule_is_refused(expression: str, zone: str) -> None:
    with pytest.raises(ValueError, match=r"crontab|cron expression|ever comes|time zone"):
        Cron(expression, zone)


def test_a_missing_extra_says_how_to_install_it() -> None:
    with (
        patch.dict("sys.modules", cronsim=None),
        pytest.raises(MissingExtra, match=r"coordlock\[cron\]"),
    ):
        Cron("0 3 * * *")


@given(schedules, moments, st.floats(-14.9, 14.9), st.floats(0, 14.9))
def test_hosts_whose_clocks_differ_by_half_a_minute_take_one_slot(
    schedule: Every | Cron, moment: datetime, off: float, late: float
) -> None:
    """Each is started by its own clock, at the scheduled time or a little later."""
    slot = next(schedule.after(moment))
    host = slot.timestamp() + late
    assert latest(schedule, host) == slot
    assert latest(schedule, host + off) == slot


@pytest.mark.parametrize("interval", [1, 10, 30])
def test_a_short_interval_is_not_taken_ahead_of_its_time(interval: int) -> None:
    """Otherwise each of its slots would be too far ahead, and refused."""
    for off in range(interval):
        slot = latest(Every(interval), AT + off)
        assert slot.timestamp() - (AT + off) <= interval / 2


def test_a_run_by_hand_in_the_afternoon_does_not_use_up_the_next_night() -> None:
    schedule = Cron("0 3 * * *", "Europe/Berlin")
    assert latest(schedule, utc("2026-11-22 15:00").timestamp()) == utc("2026-11-22 02:00")


# What is due

NOON = utc("2026-11-22 12:00")
AT = NOON.timestamp() + 1
HOURLY = Every("1h")


def hour(number: int) -> datetime:
    return NOON + number * HOUR


def kept(*slots: Slot, policy: Policy = ONCE, state: State = State.DONE) -> Ledger:
    ledger = Ledger()
    for slot in slots:
        ledger = ledger.started(slot, policy, "h", 1, AT, 100)
        if state is not State.STARTED:
            ledger = ledger.ended(ledger.records[slot].ended(state, AT), 100)
    return ledger


def test_of_a_new_job_the_latest_slot_is_due() -> None:
    for catch_up in ("none", "latest", "all"):
        assert due(Ledger(), HOURLY, AT, ONCE, catch_up) == ([NOON], [])


def test_what_is_done_is_not_due() -> None:
    assert due(kept(NOON), HOURLY, AT, ONCE, "all") == ([], [])
    assert due(kept(hour(1)), HOURLY, AT, ONCE, "all") == ([NOON], [])


def test_missed_slots_are_due_or_skipped() -> None:
    ledger = kept(hour(-5), hour(-3))
    missed = [hour(-4), hour(-2), hour(-1)]
    assert due(ledger, HOURLY, AT, ONCE, "all") == ([*missed, NOON], [])
    assert due(ledger, HOURLY, AT, ONCE, "latest") == ([NOON], missed)
    assert due(ledger, HOURLY, AT, ONCE, "none") == ([NOON], missed)


def test_with_none_even_the_latest_is_skipped_once_it_is_late() -> None:
    late = AT + 600
    assert due(kept(hour(-1)), HOURLY, late, ONCE, "none") == ([], [NOON])
    assert due(kept(hour(-1)), HOURLY, late, ONCE, "latest") == ([NOON], [])


@pytest.mark.parametrize("catch_up", ["none", "latest", "all"])
@pytest.mark.parametrize("state", [State.STARTED, State.FAILED])
def test_what_was_begun_at_least_once_is_due_until_it_is_done(catch_up: str, state: State) -> None:
    ledger = kept(hour(-3), policy=LEAST, state=state)
    wanted, skipped = due(ledger, HOURLY, AT + 600, LEAST, catch_up)  # type: ignore[arg-type]
    assert hour(-3) in wanted
    assert hour(-3) not in skipped


def test_slots_that_were_missed_for_long_have_their_turns() -> None:
    ledger = kept(hour(-2000))
    first, _ = due(ledger, HOURLY, AT, ONCE, "all")
    assert first[0] == hour(-1999)
    assert first[-1] == NOON
    for _ in range(5):
        _, skipped = due(ledger, HOURLY, AT, ONCE, "latest")
        ledger = ledger.skipped(skipped, ONCE, AT, 10)
    assert due(ledger, HOURLY, AT, ONCE, "latest") == ([NOON], [])
    [_, row] = ledger.records.values()
    assert (row.first, row.slot, row.count) == (hour(-1999), hour(-1), 1999)


def test_an_outage_leaves_the_history_of_a_job() -> None:
    ledger = kept(*(hour(number) for number in range(-250, -150)))
    _, skipped = due(ledger, HOURLY, AT, ONCE, "latest")
    ledger = ledger.skipped(skipped, ONCE, AT, 100)
    assert [one.state for one in ledger.records.values()] == [*[State.DONE] * 99, State.SKIPPED]


@given(st.data(), st.integers(1, 5), st.integers(2, 4))
def test_hosts_that_make_up_for_all_slots_run_each_once(
    data: st.DataObject, history: int, hosts: int
) -> None:
    """Each takes the slots that it saw as due, and leaves those out at which another one works."""
    hourly, missed = HOURLY.after, data.draw(st.integers(0, 12))
    ledger = kept(hour(-missed))
    ran: list[Slot] = [hour(-missed)]
    plans: list[list[Slot]] = [[] for _ in range(hosts)]
    at_work: list[tuple[int, Slot]] = []
    for step in range(60 * missed + 100):
        ends: bool = step % 8 == 0 or data.draw(st.booleans())  # nobody works for ever
        if at_work and ends:
            _, slot = at_work.pop()
            record = ledger.records[slot].ended(State.DONE, AT)
            ledger = ledger.ended(record, history, hourly)
            continue
        host = data.draw(st.integers(0, hosts - 1))
        plans[host] = plans[host] or due(ledger, HOURLY, AT, ONCE, "all")[0]
        if not plans[host]:
            break
        slot = plans[host].pop(0)
        if not at_work and ledger.refusal(slot, ONCE) is None:
            ledger = ledger.started(slot, ONCE, "h", 1, AT, history, hourly)
            at_work.append((host, slot))
            ran.append(slot)
    assert sorted(ran, key=shown) == [hour(number) for number in range(-missed, 1)]


def test_utc_needs_no_data_of_time_zones_and_others_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tzdata", None)
    zoneinfo.reset_tzpath(())
    zoneinfo.ZoneInfo.clear_cache()
    try:
        assert Cron("0 3 * * *").before(datetime(2026, 1, 2, tzinfo=UTC)).hour == 3
        with pytest.raises(ValueError, match="pip install tzdata"):
            Cron("0 3 * * *", "Europe/Berlin")
    finally:
        zoneinfo.reset_tzpath()
