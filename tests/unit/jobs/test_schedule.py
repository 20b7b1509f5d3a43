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
from coordlock.errors import ConfigurationError
from coordlock.jobs import ledger as ledger_module
from coordlock.jobs.ledger import Ledger, Policy, Rules, State, due
from coordlock.jobs.schedule import latest
from coordlock.jobs.slots import Slot, shown

ONCE, LEAST = Rules(Policy.AT_MOST_ONCE), Rules(Policy.AT_LEAST_ONCE)
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
        pytest.raises(ConfigurationError, match=r"coordlock\[cron\]"),
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


ALL = Rules(schedule=HOURLY, makes_up=True)


def kept(*slots: Slot, rules: Rules = ONCE, state: State = State.DONE) -> Ledger:
    ledger, at = Ledger(), datetime.fromtimestamp(AT, UTC)
    for slot in slots:
        ledger = ledger.started(slot, "h", 1, at, rules)
        if state is not State.RUNNING:
            ledger = ledger.with_record(ledger.records[slot].ended(state, at), at, rules)
    return ledger


def test_of_a_new_job_the_latest_slot_is_due() -> None:
    for rules in (ONCE, LEAST, ALL):
        assert due(Ledger(), HOURLY, AT, rules) == [NOON]


def test_what_is_done_is_not_due() -> None:
    assert due(kept(NOON), HOURLY, AT, ALL) == []
    assert due(kept(hour(1)), HOURLY, AT, ALL) == [NOON]


def test_missed_slots_are_due_only_where_the_job_makes_up_for_them() -> None:
    ledger = kept(hour(-5), hour(-3))
    assert due(ledger, HOURLY, AT, ALL) == [hour(-4), hour(-2), hour(-1), NOON]
    assert due(ledger, HOURLY, AT, ONCE) == [NOON]


@pytest.mark.parametrize("state", [State.RUNNING, State.FAILED, State.INTERRUPTED])
def test_what_was_begun_at_least_once_is_due_until_it_is_done(state: State) -> None:
    ledger = kept(hour(-3), rules=LEAST, state=state)
    assert due(ledger, HOURLY, AT + 10, LEAST) == [hour(-3), NOON]
    assert due(ledger, HOURLY, AT + 10, ONCE) == [NOON]
    is_delayed = state is State.FAILED
    assert due(ledger, HOURLY, AT + 9, LEAST) == [*[hour(-3)] * (not is_delayed), NOON]


def test_slots_that_were_missed_for_long_have_their_turns() -> None:
    ledger = kept(hour(-2000))
    first = due(ledger, HOURLY, AT, ALL)
    assert (first[0], first[499], first[-1]) == (hour(-1999), hour(-1500), NOON)
    assert due(ledger, HOURLY, AT, ONCE) == [NOON]


def test_an_outage_leaves_the_history_of_a_job() -> None:
    ledger = kept(*(hour(number) for number in range(-250, -150)))
    [slot] = due(ledger, HOURLY, AT, ONCE)
    ledger = ledger.started(slot, "h", 1, NOON, ONCE)
    assert [record.state for record in ledger.records.values()] == [
        *[State.DONE] * 99,
        State.RUNNING,
    ]


@given(st.data(), st.integers(1, 5), st.integers(2, 4))
def test_hosts_that_make_up_for_all_slots_run_each_once(
    data: st.DataObject, history: int, hosts: int
) -> None:
    """Each takes the slots that it saw as due, and leaves those out at which another one works."""
    missed, at = data.draw(st.integers(0, 12)), datetime.fromtimestamp(AT, UTC)
    ledger = kept(hour(-missed))
    ran: list[Slot] = [hour(-missed)]
    plans: list[list[Slot]] = [[] for _ in range(hosts)]
    at_work: list[Slot] = []
    with patch.object(ledger_module, "KEPT", history):
        for step in range(60 * missed + 100):
            ends: bool = step % 8 == 0 or data.draw(st.booleans())  # nobody works for ever
            if at_work and ends:
                record = ledger.records[at_work.pop()].ended(State.DONE, at)
                ledger = ledger.with_record(record, at, ALL)
                continue
            host = data.draw(st.integers(0, hosts - 1))
            plans[host] = plans[host] or due(ledger, HOURLY, AT, ALL)
            if not plans[host]:
                break
            slot = plans[host].pop(0)
            if not at_work and ledger.refusal(slot, ALL) is None:
                ledger = ledger.started(slot, "h", 1, at, ALL)
                at_work.append(slot)
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
