"""The suite runs for every fence there is; nothing is left out silently."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import coordlock.fencing
import tests.contract
from coordlock.fencing import AsyncFence, Fence
from coordlock.fencing.http import FencingMiddleware, WSGIFencingMiddleware
from coordlock.testing.fence_contract import FenceContract


def modules(package: object, prefix: str) -> list[str]:
    found = pkgutil.walk_packages(package.__path__, prefix)  # type: ignore[attr-defined] # a package
    return [module.name for module in found]


def test_every_fence_runs_the_suite() -> None:
    fences = {
        value
        for name in modules(coordlock.fencing, "coordlock.fencing.")
        for value in vars(importlib.import_module(name)).values()
        if inspect.isclass(value)
        and issubclass(value, Fence | AsyncFence)
        and not inspect.isabstract(value)
        and not value.__name__.startswith("_")
    }
    tested = {
        vars(value)["fence"]
        for name in modules(tests.contract, "tests.contract.")
        if name.startswith("tests.contract.test_fence_")
        for value in vars(importlib.import_module(name)).values()
        if inspect.isclass(value) and issubclass(value, FenceContract) and "fence" in vars(value)
    }
    assert tested == fences | {FencingMiddleware, WSGIFencingMiddleware}
