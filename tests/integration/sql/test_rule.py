"""The statement that checks does exactly what the rule says, for any tokens in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, MetaData, create_engine

from coordlock import StaleToken
from coordlock.fencing import MAX_TOKEN, FencingToken, Marks
from coordlock.fencing.sql import SQLFence, fence_table

TABLE: Final = fence_table(MetaData())

few = st.integers(1, 5) | st.integers(MAX_TOKEN - 2, MAX_TOKEN)
tokens = st.builds(FencingToken, few | st.integers(1, MAX_TOKEN), st.booleans())
operations = st.lists(st.tuples(st.sampled_from("ab"), tokens | st.none()), max_size=20)


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "sqlite":
        engine = create_engine("sqlite://")
        TABLE.create(engine)
        yield engine
        engine.dispose()
        return
    with request.getfixturevalue("postgres").schema() as url:
        engine = create_engine(url)
        TABLE.create(engine)
        yield engine
        engine.dispose()


@given(operations)
def test_sql_does_what_the_marks_do(
    engine: Engine, operations: list[tuple[str, FencingToken | None]]
) -> None:
    """None instead of a token forgets the resource."""
    expected = {"a": Marks(), "b": Marks()}
    with engine.connect() as connection:  # and roll back
        fence = SQLFence(connection, TABLE)
        for resource, token in operations:
            if token is None:
                fence.forget(resource)
                expected[resource] = Marks()
            else:
                wanted = outcome(partial(expected[resource].raised, resource, token))
                assert outcome(partial(checked, fence, resource, token)) == wanted
                if isinstance(wanted, Marks):
                    expected[resource] = wanted
            assert {name: fence.marks(name) for name in "ab"} == expected


def checked(fence: SQLFence, resource: str, token: FencingToken) -> Marks:
    fence.check(resource, token)
    return fence.marks(resource)


def outcome(step: Callable[[], Marks]) -> Marks | dict[str, Any]:
    """What ``step`` returns, or the facts of the refusal."""
    try:
        return step()
    except StaleToken as refusal:
        return vars(refusal)
