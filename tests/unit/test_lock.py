from __future__ import annotations

import inspect
import math
from typing import Any

import pytest

from coordlock import DEFAULT, Client, Settings
from coordlock.kernel.access import Access
from coordlock.kernel.engine import Engine
from tests.unit.clients import Service

pytestmark = pytest.mark.usefixtures("no_leaks")


# Timeouts


def test_the_nearest_timeout_counts(service: Service) -> None:
    engine = service.engine()
    client = Client._of(Access(Engine(engine.backend, Settings("memory", timeout=7.0))))
    assert client.lock("q").timeout == 7.0
    assert client.lock("q", timeout=DEFAULT).timeout == 7.0
    assert client.lock("q", timeout=3).timeout == 3
    assert client.lock("q", timeout=None).timeout is None
    assert client.lock("q", timeout=math.inf).timeout is None
    assert client.lock("q", timeout=0).timeout == 0
    client.close()
    Client._of(Access(engine)).close()


@pytest.mark.parametrize(
    "timeout", [-1, -0.001, math.nan, -math.inf, "five", b"5", True, False, []]
)
def test_a_timeout_that_is_none_is_refused_wherever_it_is_given(
    client: Client, timeout: Any
) -> None:
    with pytest.raises(ValueError, match="timeout"):
        client.lock("q", timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        client.lock("q").acquire(timeout)
    assert client.admin.names() == []


# Decorators


def test_a_decorated_function_keeps_its_face_and_its_results(client: Client) -> None:
    @client.lock("q")
    def add(one: int, *, other: int = 2) -> int:
        """Add."""
        assert len(client.admin.contenders("q")) == 1
        return one + other

    assert (add.__name__, add.__doc__) == ("add", "Add.")
    assert str(inspect.signature(add)) == "(one: 'int', *, other: 'int' = 2) -> 'int'"
    assert add(1, other=4) == 5
    assert add(1) == 3
    assert client.admin.contenders("q") == ()


# One lock object for many
