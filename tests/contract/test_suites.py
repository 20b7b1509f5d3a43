"""Every suite of `coordlock.testing` and of the recipes on every backend, sync and async.

``TestLockOnEtcd`` is `LockContract` on etcd. Suites and backends are looked up, so that none is
left out.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from coordlock import testing
from coordlock.backend.registry import backend_for_scheme, schemes
from coordlock.testing.backend_contract import PartySuite
from coordlock.testing.disturbed_suite import DisturbedSuite
from tests.conftest import IS_INSTALLED
from tests.contract import recipes
from tests.contract.disturbing import DISTURBED, PARTY_OPTIONS

#: Where async clients pass the suites in ``make test``: no backend knows which client uses it.
ASYNC: Final = "memory"


@pytest.fixture
def url(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    """A root of the test's own on the backend of its class."""
    match request.cls.backend.scheme:
        case "memory":
            return f"memory://{root}?request_timeout=30s"
        case "local":
            return f"local://{tmp_path}/state?request_timeout=30s"
        case server:
            options = PARTY_OPTIONS if issubclass(request.cls, PartySuite) else {}
            url: str = request.getfixturevalue(server).url_for(root, **options)
            return url


def suites() -> Iterator[type[Any]]:
    """What backends pass; fences have tests of their own."""
    for module in (
        *pkgutil.iter_modules(testing.__path__, f"{testing.__name__}."),
        *pkgutil.iter_modules(recipes.__path__, f"{recipes.__name__}."),
    ):
        if module.name.endswith("_contract") and not module.name.endswith(".fence_contract"):
            contract = import_module(module.name)
            yield from (
                getattr(contract, name) for name in contract.__all__ if name.endswith("Contract")
            )


def on_every_backend() -> Iterator[tuple[str, type[Any]]]:
    """The classes of tests by their names."""
    kinds = {scheme: backend_for_scheme(scheme) for scheme in schemes()}
    for scheme, kind in kinds.items():
        if any(issubclass(kind, other) and kind is not other for other in kinds.values()):
            continue  # the same service under another scheme
        where = kind.__name__.removesuffix("Backend")
        for suite in suites():
            if not all(getattr(kind.capabilities, need) for need in suite.needs):
                continue
            server = {"redlock": "redis", "postgresql": "postgres"}.get(scheme, scheme)
            marks = [getattr(pytest.mark, server)] if server in IS_INSTALLED else []
            if scheme != ASYNC:
                marks.append(pytest.mark.long_on("async"))
            what = suite.__name__.removesuffix("Contract")
            bases = (DISTURBED[scheme], suite) if issubclass(suite, DisturbedSuite) else (suite,)
            name = f"Test{what}On{where}"
            yield name, type(name, bases, {"backend": kind, "pytestmark": marks})


globals().update(on_every_backend())
