from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlock.errors import InvalidName
from coordlock.model.names import MAX_NAME_BYTES, check_name, escape, internal, joined, unescape

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
components = st.text("%2Ee./\0a-é~+ ", max_size=12) | st.text(max_size=12)


@given(names)
def test_a_name_comes_back_from_its_escaped_form(name: str) -> None:
    assert unescape(escape(name)) == name


@given(names | st.text("./%\0~2Ee", min_size=1, max_size=6))
def test_an_escaped_name_is_one_plain_component(name: str) -> None:
    component = escape(name)
    assert component.isascii()
    assert component.isprintable()
    assert component not in ("", ".", "..")
    assert not set(component) & set('/\\\0 *?"<>|:')
    assert len(component) <= 3 * len(name.encode())


@given(names, names)
def test_different_names_have_different_components(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) is (one == other)


@given(components)
def test_only_what_escape_makes_is_a_name(component: str) -> None:
    name = unescape(component)
    if name is not None:
        assert escape(name) == component
        assert name.encode()


@pytest.mark.parametrize("component", ["", "a b", "%2f", "%41", "%", "%zz", ".", "..", "%FF", "é"])
def test_what_escape_never_makes_is_no_name(component: str) -> None:
    assert unescape(component) is None


@pytest.mark.parametrize("name", [".", "..", "...", "a/..", "\0", "%2E", "%"])
def test_dangerous_names_are_names_like_others(name: str) -> None:
    assert check_name(name) == name
    assert unescape(escape(name)) == name


@pytest.mark.parametrize("name", ["x" * MAX_NAME_BYTES, "é" * (MAX_NAME_BYTES // 2), " ", "\n"])
def test_names_up_to_the_limit_are_accepted(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is empty"),
        ("x" * (MAX_NAME_BYTES + 1), "256 bytes"),
        ("é" * 128, "256 bytes"),
        ("\ud800", "surrogate"),
        (b"x", "not bytes"),
        (None, "not NoneType"),
        (7, "not int"),
    ],
    ids=ascii,
)
def test_what_cannot_be_a_name_is_refused_with_its_problem(name: Any, problem: str) -> None:
    with pytest.raises(InvalidName, match=problem) as caught:
        check_name(name)
    # Whoever logs the error can encode it.
    assert str(caught.value).encode()


def test_many_names_are_not_all_shown() -> None:
    assert joined(["a"]) == "a"
    assert joined(map(str, range(10))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert joined(map(str, range(6000))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 5990 more"


def test_no_name_of_a_lock_is_that_of_an_internal_queue() -> None:
    assert escape(internal("waits")) == "@waits"
    assert unescape("@waits") is None
    assert escape("@waits") != "@waits"
    with pytest.raises(InvalidName):
        check_name(internal("waits"))
