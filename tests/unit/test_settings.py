from __future__ import annotations

import copy
from dataclasses import FrozenInstanceError
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coordlock
from coordlock import ConfigurationError, Settings
from coordlock.settings import (
    COMMON_OPTIONS,
    Option,
    Parser,
    boolean,
    choice,
    duration,
    number,
    optional,
    text,
)

anything = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary()
)


@given(
    st.sampled_from(
        [
            duration(),
            duration(1, 3600),
            number(1, 9),
            optional(number(1, 9)),
            optional(duration()),
            boolean,
            choice("a", "b"),
            text,
        ]
    ),
    anything | st.lists(st.integers()),
)
def test_a_parser_gives_a_value_or_a_value_error_with_what_is_accepted(
    parse: Parser, value: object
) -> None:
    problem = "none"
    try:
        parse(value)
    except ValueError as error:
        problem = str(error)
    assert problem


@pytest.mark.parametrize(
    "value", [0.05, "50ms", "0.05", Fraction(1, 20), timedelta(milliseconds=50)]
)
def test_durations_are_numbers_texts_or_timedeltas_wherever_seconds_are_taken(value: Any) -> None:
    assert duration()(value) == pytest.approx(0.05)
    with coordlock.connect("memory://durations", timeout=value) as client:
        assert client.lock("q").timeout == pytest.approx(0.05)
        assert client.lock("q", timeout=value).timeout == pytest.approx(0.05)
        grant = client.lock("q").acquire(value)
        with pytest.raises(coordlock.AcquireTimeout):
            client.lock("q").acquire(timeout=value)
        assert grant.lost.wait(value) is False
        assert grant.release(value) is True


@pytest.mark.parametrize("value", [1e-05, timedelta(microseconds=10), ".00001s"])
def test_a_duration_that_python_writes_with_an_exponent_is_one(value: Any) -> None:
    assert duration()(value) == pytest.approx(1e-05)


@given(st.integers(0, 10**6))
def test_a_duration_in_any_unit_is_the_same(milliseconds: int) -> None:
    parse = duration(0, 86_400)
    assert parse(f"{milliseconds}ms") == pytest.approx(parse(f"{milliseconds / 1000:.3f}s"))


@pytest.mark.parametrize("value", ["5", 5, " 5 "])
def test_a_number_is_an_integer_in_range(value: object) -> None:
    assert number(1, 9)(value) == 5


@pytest.mark.parametrize(
    "value", ["0", "10", "5.0", 5.0, True, "five", "", "5_0", "\u0665", "9" * 400]
)
def test_a_number_out_of_range_or_none_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="an integer from 1 to 9"):
        number(1, 9)(value)


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", "TRUE", True])
def test_words_for_true(word: object) -> None:
    assert boolean(word) is True


@pytest.mark.parametrize("word", ["false", "0", "no", "off", "Off", False])
def test_words_for_false(word: object) -> None:
    assert boolean(word) is False


def test_a_secret_option_is_named_and_not_shown() -> None:
    option = Option("pin", number(1, 9), None, "", secret=True)
    with pytest.raises(ConfigurationError) as caught:
        option.read("XQZ7")
    assert "'pin'" in str(caught.value)
    assert "XQZ7" not in f"{caught.value} {caught.value!r}"


def test_defaults_are_what_their_parsers_accept() -> None:
    for option in COMMON_OPTIONS:
        if option.default not in (None, ""):
            assert option.parse(option.default) == option.default
    assert Settings("memory").ttl == COMMON_OPTIONS[0].default
    for option in COMMON_OPTIONS:
        assert getattr(Settings("memory"), option.name) == option.default


def test_settings_are_frozen_and_copied_as_a_whole() -> None:
    settings = Settings("memory", ("h",), options={"x": 1})
    with pytest.raises(FrozenInstanceError):
        settings.ttl = 5.0  # type: ignore[misc]
    assert copy.copy(settings) == settings


def test_settings_show_their_place_and_no_secrets() -> None:
    settings = Settings("etcd", ("h:1", "g:2"), "/r", "user", "XQZ7", options={"token": "WVK8"})
    assert str(settings) == "etcd://h:1,g:2/r"
    assert "XQZ7" not in repr(settings)
    assert "WVK8" not in repr(settings)
