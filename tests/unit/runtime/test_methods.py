"""Public methods made of protocols: what runs, and what readers and tools see."""

from __future__ import annotations

import asyncio
import inspect
from typing import Generic, TypeVar

import pytest

from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.runtime.guards import Resident
from coordlock.runtime.promise import resolved

N = TypeVar("N")


class BaseCounter(Resident, Generic[N]):
    _instead = "count anew"

    def _make(self, number: int) -> N:
        raise NotImplementedError

    def _add(self, more: int, *, times: int = 1) -> Steps[N]:
        """Add ``more``."""
        base: int = yield resolved(10)
        return self._make(base + more * times)


class Counter(BaseCounter[str]):
    def _make(self, number: int) -> str:
        return str(number)

    add = blocking(BaseCounter[str]._add)


class AsyncCounter(BaseCounter[bytes]):
    def _make(self, number: int) -> bytes:
        return b"%d" % number

    add = awaiting(BaseCounter[bytes]._add)


def test_one_protocol_makes_a_method_that_blocks_and_one_to_await() -> None:
    blocked: str = Counter().add(2, times=3)
    awaited: bytes = asyncio.run(AsyncCounter().add(5))
    assert (blocked, awaited) == ("16", b"15")
    assert inspect.iscoroutinefunction(AsyncCounter.add)
    assert not inspect.isgeneratorfunction(Counter.add)


@pytest.mark.parametrize("made", [Counter, AsyncCounter])
def test_tools_see_the_name_the_docstring_and_the_parameters_of_the_method(made: type) -> None:
    add = vars(made)["add"]
    assert str(inspect.signature(add)).startswith("(self, more: 'int', *, times: 'int' = 1) -> ")
    assert inspect.getdoc(add) == "Add ``more``."
    assert (add.__name__, add.__qualname__) == ("add", "BaseCounter.add")


def test_a_wrong_call_is_refused_in_the_words_of_the_public_method() -> None:
    with pytest.raises(TypeError, match=r"^BaseCounter\.add\(\) missing 1 required positional"):
        Counter().add()  # type: ignore[call-arg]
