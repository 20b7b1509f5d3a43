"""Decorators that hold a lock whose name is computed from the arguments of each call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_type

import pytest

import coordlock
from coordlock import AcquireTimeout, AsyncClient, Client, Mode
from coordlock.runtime.log import flush


@dataclass
class Order:
    customer: str


@pytest.fixture
def client(root: str, no_leaks: None) -> Iterator[Client]:
    with coordlock.connect(f"memory://{root.strip('/')}") as client:
        yield client


ANN = Order("ann")


def by_customer(order: Order) -> str:
    return f"customer/{order.customer}"


@pytest.mark.parametrize(
    ("args", "kwargs"), [((1, ANN), {}), ((1,), {"order": ANN}), ((), {"amount": 1, "order": ANN})]
)
def test_the_name_is_that_of_the_calls_arguments(
    client: Client, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    @client.lock_by(by_customer)
    def bill(amount: int, order: Order) -> list[str]:
        return client.admin.names()

    assert bill(*args, **kwargs) == ["customer/ann"]
    assert client.admin.names() == []


def test_defaults_and_methods_are_calls_like_others(client: Client) -> None:
    class Shop:
        name = "shop"

        @client.lock_by(lambda self, item: f"{self.name}/{item}")
        def sell(self, item: str = "book", *rest: str, **more: str) -> list[str]:
            return client.admin.names()

    assert Shop().sell() == ["shop/book"]
    assert Shop().sell("pen", "x", y="z") == ["shop/pen"]


def test_calls_with_other_keys_run_side_by_side_and_a_busy_one_raises(client: Client) -> None:
    @client.lock_by(by_customer, timeout=0, mode=Mode.PW)
    def bill(order: Order, inner: Order) -> bool:
        if order is inner:
            return True
        return bill(inner, inner)

    assert assert_type(bill(ANN, Order("bob")), bool)
    with pytest.raises(AcquireTimeout):
        bill(ANN, Order("ann"))


def test_a_busy_call_is_skipped_and_logged(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    @client.lock_by(by_customer, on_busy="skip")
    def bill(order: Order) -> str:
        return "billed"

    assert bill(ANN) == "billed"
    with caplog.at_level(logging.INFO, "coordlock"), client.lock("customer/ann"):
        assert assert_type(bill(ANN), str | None) is None
        assert bill(Order("bob")) == "billed"
        flush()
    assert caplog.text.count("bill was not called: lock 'customer/ann' was not granted") == 1


def test_a_timeout_in_the_body_is_the_bodys(client: Client) -> None:
    @client.lock_by(by_customer, on_busy="skip")
    def bill(order: Order) -> None:
        client.lock("other").acquire(timeout=0)

    with client.lock("other"), pytest.raises(AcquireTimeout):
        bill(ANN)


def test_the_same_for_asyncio() -> None:
    async def main() -> None:
        async with coordlock.connect_async("memory://keyed") as client:

            @client.lock_by(by_customer, on_busy="skip")
            async def bill(order: Order) -> str:
                assert await client.admin.names() == [by_customer(order)]
                return "billed"

            assert await bill(ANN) == "billed"
            async with client.lock("customer/ann"):
                assert assert_type(await bill(ANN), str | None) is None

    asyncio.run(main())


def test_what_is_no_parameter_of_the_function_is_refused(client: Client) -> None:
    with pytest.raises(TypeError, match=r"key asks for customer, and .*bill has order"):

        @client.lock_by(lambda customer: str(customer))
        def bill(order: Order) -> None: ...

    with pytest.raises(TypeError, match="makes a coroutine"):

        @client.lock_by(by_customer)
        async def later(order: Order) -> None: ...

    with pytest.raises(TypeError, match="not a coroutine function"):
        AsyncClient("memory://keyed").lock_by(by_customer)(lambda order: None)  # type: ignore[arg-type,return-value]  # on purpose
    for wrong in ("customer", None):
        with pytest.raises(TypeError, match="key must be a function"):
            client.lock_by(wrong)  # type: ignore[call-overload]  # on purpose
    with pytest.raises(ValueError, match="on_busy must be 'raise' or 'skip', not 'wait'"):
        client.lock_by(by_customer, on_busy="wait")  # type: ignore[call-overload]  # on purpose


def test_a_name_with_a_parameter_in_braces_is_refused_and_told_what_to_write(
    client: Client,
) -> None:
    match = r"write @client.lock_by\(lambda order: f'customer/\{order.customer\}'\)"
    locks: list[Any] = [
        client.lock("customer/{order.customer}"),
        client.multi_lock(["all", "customer/{order.customer}"]),
        client.reentrant_lock("customer/{order.customer}"),
    ]
    for lock in locks:
        with pytest.raises(ValueError, match=match):
            lock(by_customer)

    with pytest.raises(ValueError, match=match):

        @AsyncClient("memory://keyed").lock("customer/{order.customer}")
        async def later(order: Order) -> None: ...

    @client.lock("customer/{x}")  # no parameter: a name like others
    def other(order: Order) -> list[str]:
        return client.admin.names()

    assert other(ANN) == ["customer/{x}"]
