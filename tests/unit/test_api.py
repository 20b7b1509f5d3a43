"""The public API: as recorded in ``api.txt``, the same for sync and asyncio, and documented.

A new public name is entered in the imports of ``coordlock/__init__.py``, of ``coordlock/types.py``
or in ``coordlock/errors.py``. Then ``python -m tests.unit.test_api`` shows the names, and derives
from them the record, the map of ``coordlock/__init__.py`` and the tree of the page on errors.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

import coordlock
from coordlock import errors, fencing, types
from coordlock.fencing.http import AsyncFencedSession, FencedSession
from coordlock.fencing.redis import AsyncRedisFence, RedisFence
from coordlock.fencing.sql import (
    AsyncSQLFence,
    AsyncSQLGuardingFence,
    SQLFence,
    SQLGuardingFence,
)

RECORD = Path(__file__).with_name("api.txt")
#: The modules that applications use, each with its ``__all__``.
FOR_APPLICATIONS = (
    "coordlock",
    "coordlock.errors",
    "coordlock.types",
    "coordlock.fencing",
    "coordlock.fencing.files",
    "coordlock.fencing.http",
    "coordlock.fencing.redis",
    "coordlock.fencing.sql",
    "coordlock.integrations.alembic",
    "coordlock.integrations.apscheduler",
    "coordlock.integrations.celery",
    "coordlock.integrations.django",
    "coordlock.integrations.fastapi",
    "coordlock.integrations.flask",
    "coordlock.integrations.pytest",
    "coordlock.integrations.sqlalchemy",
    "coordlock.telemetry",
    "coordlock.telemetry.otel",
    "coordlock.telemetry.prometheus",
)
#: And those that backends and their tests build on.
FOR_BACKENDS = (
    "coordlock.backend",
    "coordlock.runtime.log",
    "coordlock.model.claim",
    "coordlock.model.contender",
    "coordlock.runtime.promise",
    "coordlock.settings",
    "coordlock.testing.backend_contract",
    "coordlock.testing.client_suite",
    "coordlock.testing.data_contract",
    "coordlock.testing.disturbed_suite",
    "coordlock.testing.entry_set_contract",
    "coordlock.testing.fence_contract",
    "coordlock.testing.lock_contract",
    "coordlock.testing.lock_service",
    "coordlock.testing.observation_contract",
    "coordlock.testing.published_value_contract",
    "coordlock.testing.transaction_contract",
    "coordlock.testing.waiting",
    "coordlock.records.transaction",
)
MODULES = [importlib.import_module(name) for name in (*FOR_APPLICATIONS, *FOR_BACKENDS)]
PUBLIC = [
    pytest.param(getattr(module, name), name, id=f"{module.__name__}.{name}")
    for module in MODULES
    for name in module.__all__
]
TWINS = [
    (coordlock.Client, coordlock.AsyncClient),
    (coordlock.types.Admin, coordlock.types.AsyncAdmin),
    (coordlock.Lock, coordlock.AsyncLock),
    (coordlock.Grant, coordlock.AsyncGrant),
    (coordlock.types.ReentrantLock, coordlock.types.AsyncReentrantLock),
    (coordlock.types.ReentrantGrant, coordlock.types.AsyncReentrantGrant),
    (coordlock.types.UpgradeableLock, coordlock.types.AsyncUpgradeableLock),
    (coordlock.types.UpgradeableGrant, coordlock.types.AsyncUpgradeableGrant),
    (coordlock.types.MultiLock, coordlock.types.AsyncMultiLock),
    (coordlock.types.KeyedLock, coordlock.types.AsyncKeyedLock),
    (coordlock.types.MultiGrant, coordlock.types.AsyncMultiGrant),
    (coordlock.types.Signal, coordlock.types.AsyncSignal),
    (coordlock.Election, coordlock.AsyncElection),
    (coordlock.Term, coordlock.AsyncTerm),
    (coordlock.Group, coordlock.AsyncGroup),
    (coordlock.types.Membership, coordlock.types.AsyncMembership),
    (coordlock.types.Presence, coordlock.types.AsyncPresence),
    (coordlock.types.Observer, coordlock.types.AsyncObserver),
    (coordlock.WorkQueue, coordlock.AsyncWorkQueue),
    (coordlock.Item, coordlock.AsyncItem),
    (coordlock.Counter, coordlock.AsyncCounter),
    (coordlock.Barrier, coordlock.AsyncBarrier),
    (coordlock.DoubleBarrier, coordlock.AsyncDoubleBarrier),
    (coordlock.Gate, coordlock.AsyncGate),
    (coordlock.Latch, coordlock.AsyncLatch),
    (coordlock.Value, coordlock.AsyncValue),
    (coordlock.Values, coordlock.AsyncValues),
    (coordlock.types.Transaction, coordlock.types.AsyncTransaction),
    (fencing.Fence, fencing.AsyncFence),
    (fencing.GuardingFence, fencing.AsyncGuardingFence),
    (fencing.MemoryFence, fencing.AsyncMemoryFence),
    (RedisFence, AsyncRedisFence),
    (SQLFence, AsyncSQLFence),
    (SQLGuardingFence, AsyncSQLGuardingFence),
    (FencedSession, AsyncFencedSession),
]
#: What cannot be the same.
ONLY_ASYNC: dict[type, set[str]] = {
    kind: {"cancel_on_loss"}
    for kind in (
        coordlock.AsyncGrant,
        coordlock.types.AsyncReentrantGrant,
        coordlock.types.AsyncUpgradeableGrant,
        coordlock.types.AsyncMultiGrant,
        coordlock.AsyncTerm,
        coordlock.types.AsyncMembership,
        coordlock.AsyncItem,
    )
}
#: asyncio bounds every wait with ``asyncio.timeout``.
OTHER_PARAMETERS = {
    (coordlock.types.Signal, "wait"),
    (coordlock.Election, "run"),  # of a coroutine function
    (coordlock.WorkQueue, "run"),  # of a coroutine function
}
#: Parts of object and of the standard library's bases say nothing about us.
SPECIAL = {"__call__", "__enter__", "__exit__", "__aenter__", "__aexit__", "__await__"}


FIXTURE = type(pytest.fixture(lambda: None))


def members(kind: type) -> dict[str, Any]:
    """The public members of a class, those of its own bases included.

    Of a suite not its tests and fixtures: a backend takes it as it comes.
    """
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] == "coordlock":
            found |= {
                name: inspect.unwrap(value) if name in SPECIAL else value
                for name, value in vars(base).items()
                if name in SPECIAL
                or not (name.startswith(("_", "test_")) or isinstance(value, FIXTURE))
            }
    return found


def attributes(kind: type) -> Iterator[tuple[str, str]]:
    """The public attributes that instances get when they are made."""
    for base in reversed(kind.__mro__):
        ours = base.__module__.startswith("coordlock") and not dataclasses.is_dataclass(base)
        if ours and "__init__" in vars(base):
            source = inspect.getsource(vars(base)["__init__"])
            yield from re.findall(r"^ +self\.([a-z]\w*): (Final\S*) =", source, re.MULTILINE)


class _Named:
    """Stands for a value whose representation is another in each run, or is long."""

    def __init__(self, value: object) -> None:
        self._name = re.sub(" at 0x[0-9a-f]+", "", str(value))

    def __repr__(self) -> str:
        return self._name


def shown(value: Any) -> Any:
    return _Named(value) if " at 0x" in repr(value) else value


def signature_of(function: Any) -> inspect.Signature:
    signature = inspect.signature(function)
    parameters = [one.replace(default=shown(one.default)) for one in signature.parameters.values()]
    returned = signature.return_annotation
    if is_protocol(function):
        returned = str(returned).removeprefix("Steps[").removesuffix("]")
    return signature.replace(parameters=parameters, return_annotation=returned)


def describe(name: str, value: Any) -> str:
    return _describe(name, value) + deprecation(value)


def deprecation(value: Any) -> str:
    """How the record marks what ``warnings.deprecated`` decorates."""
    decorated = value.fget if isinstance(value, property) else value
    return "  # deprecated" * ("__deprecated__" in getattr(decorated, "__dict__", ()))


def _describe(name: str, value: Any) -> str:
    if isinstance(value, property):
        assert value.fget is not None
        return f"{name}: {inspect.signature(value.fget).return_annotation}"
    if isinstance(value, classmethod | staticmethod):
        return f"{type(value).__name__} {name}{signature_of(value.__func__)}"
    if inspect.isfunction(value):
        word = "async " if inspect.iscoroutinefunction(value) else ""
        return f"{word}{name}{signature_of(value)}"
    return name


def lines() -> Iterator[str]:
    for module in MODULES:
        yield f"# {module.__name__}"
        yield from lines_of(module)


def lines_of(module: ModuleType) -> Iterator[str]:
    for name in module.__all__:
        value = getattr(module, name)
        if not inspect.isclass(value):
            signature = signature_of(value) if callable(value) else f" = {shown(value)!r}"
            yield f"{name}{signature}" + deprecation(value)
            continue
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {name}({bases})" + deprecation(value)
        if issubclass(value, enum.Enum):
            yield from (f"    {one.name} = {one.value!r}" for one in value)
        elif dataclasses.is_dataclass(value):
            yield from (f"    {f.name}: {f.type}" for f in dataclasses.fields(value))
        yield from (f"    self.{name}: {kind}" for name, kind in attributes(value))
        fields = set(getattr(value, "__dataclass_fields__", ())) | set(
            getattr(value, "__members__", ())
        )
        for member, what in sorted(members(value).items()):
            if member not in fields:
                yield f"    {describe(member, what)}"


def test_the_public_api_is_as_recorded() -> None:
    assert "\n".join(lines()) == RECORD.read_text("utf-8").rstrip("\n")


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_all_is_sorted(module: ModuleType) -> None:
    assert module.__all__ == sorted(module.__all__, key=_order)


def _order(name: str) -> tuple[bool, str]:
    """Constants come first, as the linter has it."""
    return not name.isupper(), name


def test_all_is_complete() -> None:
    public = {
        name
        for name, value in vars(coordlock).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(coordlock.__all__)


def test_dir_shows_the_public_names_and_no_modules() -> None:
    assert {name for name in dir(coordlock) if not name.startswith("_")} == set(coordlock.__all__)


def is_protocol(member: object) -> bool:
    """Whether a method is one of `coordlock.runtime.driver.blocking`."""
    return inspect.isfunction(member) and str(member.__annotations__.get("return")).startswith(
        "Steps["
    )


def plain(annotation: object) -> str:
    """An annotation without what must differ between the twins."""
    text = str(annotation)
    text = re.sub(r"\b(Async|Sync)(?=[A-Z])", "", text).replace("AbstractAsync", "Abstract")
    return re.sub(r"Coroutine\[Any, Any, ([\w |]+)\]|\bA(C_co)\b", r"\1\2", text)


@pytest.mark.parametrize(("sync", "asynchronous"), TWINS)
def test_the_twins_have_the_same_members(sync: type, asynchronous: type) -> None:
    def names(kind: type) -> set[str]:
        return {name.replace("__a", "__") for name in members(kind)} - ONLY_ASYNC.get(kind, set())

    assert names(sync) == names(asynchronous)


@pytest.mark.parametrize(("sync", "asynchronous"), TWINS)
def test_the_twins_have_the_same_parameters_defaults_and_annotations(
    sync: type, asynchronous: type
) -> None:
    others = members(asynchronous)
    for name, mine in members(sync).items():
        theirs = others.get(name) or others["__a" + name.removeprefix("__")]
        assert isinstance(theirs, property) is isinstance(mine, property)
        if isinstance(mine, property):
            mine, theirs = mine.fget, theirs.fget
        if not callable(mine) or (sync, name) in OTHER_PARAMETERS:
            continue
        my, their = inspect.signature(mine), inspect.signature(theirs)
        assert [(p.name, p.kind, p.default) for p in my.parameters.values()] == [
            (p.name, p.kind, p.default) for p in their.parameters.values()
        ], name
        assert [plain(p.annotation) for p in my.parameters.values()] == [
            plain(p.annotation) for p in their.parameters.values()
        ], name
        assert plain(my.return_annotation) == plain(their.return_annotation), name


def test_a_client_is_small_because_the_calls_of_operators_have_a_place_of_their_own() -> None:
    assert len([name for name in members(coordlock.Client) if not name.startswith("_")]) <= 26


def test_connecting_takes_the_same_for_both() -> None:
    one, other = inspect.signature(coordlock.connect), inspect.signature(coordlock.connect_async)
    assert one.parameters == other.parameters


@pytest.mark.parametrize(
    ("sync", "asynchronous"), [twins for twins in TWINS if hasattr(twins[0], "on_lost")]
)
def test_what_a_recipe_grants_is_a_grant(sync: type, asynchronous: type) -> None:
    """So an application annotates with `Grant` what takes any of them."""
    assert issubclass(sync, coordlock.Grant)
    assert issubclass(asynchronous, coordlock.AsyncGrant)


@pytest.mark.parametrize(("sync", "asynchronous"), TWINS)
def test_what_waits_is_awaited_and_nothing_else(sync: type, asynchronous: type) -> None:
    # Either it is one protocol, blocking here and awaited there, or it is written twice.
    waiting = {"__aenter__", "__aexit__", "release", "run", "wait"} | {
        name for name, member in members(sync).items() if is_protocol(member)
    }
    if hasattr(sync, "release_with"):
        waiting |= {"guard", "release_with"}  # by the program's connection
    if issubclass(asynchronous, fencing.AsyncFence):
        waiting |= {"check", "marks", "forget", "prune", "execute", "execute_all"}
    if asynchronous is AsyncFencedSession:
        waiting |= {"request", "get", "post", "put", "patch", "delete"}
    for name, member in members(asynchronous).items():
        assert inspect.iscoroutinefunction(member) is (name in waiting), name
    for name, member in members(sync).items():
        assert not inspect.iscoroutinefunction(member), name


@pytest.mark.parametrize(("value", "name"), PUBLIC)
def test_everything_public_is_documented(value: Any, name: str) -> None:
    if not callable(value) or get_args(value):
        return  # a constant, or a union of types: see the comment beside it
    assert value.__doc__
    # A dataclass without a docstring of its own gets its signature as one.
    assert not value.__doc__.startswith(f"{name}(")
    if inspect.isclass(value):
        for member, what in members(value).items():
            if not member.startswith("_") and (callable(what) or isinstance(what, property)):
                assert inspect.getdoc(what), f"{name}.{member}"


@pytest.mark.parametrize(("value", "name"), PUBLIC)
def test_everything_public_is_fully_annotated(value: Any, name: str) -> None:
    functions = members(value).values() if inspect.isclass(value) else [value]
    for function in functions:
        if inspect.isfunction(function):
            signature = inspect.signature(function)
            empty = inspect.Signature.empty
            assert signature.return_annotation is not empty
            for parameter in list(signature.parameters.values())[inspect.isclass(value) :]:
                assert parameter.annotation is not empty, (function, parameter)


def test_errors_of_types_name_the_public_call_and_show_modes_by_their_names() -> None:
    with coordlock.connect("memory://names") as client:
        calls: list[tuple[Any, type[Exception], str]] = [
            (lambda: client.lock(), TypeError, r"\.lock\(\) missing .* 'name'"),  # type: ignore[call-arg]
            (lambda: client.lock("a", mode="PR"), ValueError, r"Mode\.PR, .* not 'PR'$"),  # type: ignore[arg-type]
            (lambda: client.lock("a").acquire("soon"), ValueError, "^timeout of acquire: 'soon'"),
            (
                lambda: client.lock("a", timeout=-1),
                ValueError,
                "^timeout of acquire: -1 is neither",
            ),
        ]
        with client.lock("held") as grant:
            calls += [
                (lambda: grant.release("soon"), ValueError, "^timeout of release: 'soon'"),
                (lambda: grant.lost.wait("soon"), ValueError, "^timeout of wait: 'soon'"),
                (lambda: grant.check(1), TypeError, r"Grant\.check\(\) takes 1"),  # type: ignore[call-arg]
            ]
            for call, kind, text in calls:
                with pytest.raises(kind, match=text):
                    call()


STUB = Path(coordlock.__file__).with_suffix(".pyi")
ERRORS_PAGE = Path(__file__).parents[2] / "docs/reference/errors.md"


def derived_stub() -> str:
    """``coordlock/__init__.pyi``: what type checkers see of the table of names."""
    lines = ["# Made by `python -m tests.unit.test_api` of the table in `__init__.py`."]
    lines.append("from coordlock import errors as errors, types as types")
    for module, names in sorted(coordlock._NAMES.items()):  # type: ignore[attr-defined]
        shown = ", ".join(f"{name} as {name}" for name in sorted(names.split()))
        lines.append(f"from coordlock.{module} import {shown}")
    return "\n".join([*lines, "", "__version__: str", "__all__: list[str]", ""])


def derived_errors_page() -> str:
    """The page on errors with the tree of `coordlock.errors`."""
    assert errors.__doc__ is not None
    tree = errors.__doc__.partition("::\n\n")[2].partition("\n\n")[0]
    before, begin, rest = ERRORS_PAGE.read_text("utf-8").partition("```text\n")
    _, end, after = rest.partition("```\n")
    return before + begin + inspect.cleandoc("\n" + tree) + "\n" + end + after


def test_what_is_imported_at_run_time_is_what_type_checkers_see() -> None:
    assert STUB.read_text("utf-8") == derived_stub()


def test_the_top_has_what_applications_write_and_no_more() -> None:
    assert 40 < len(coordlock.__all__) <= 65


def test_no_name_stands_in_two_public_modules_as_two_things() -> None:
    assert not set(coordlock.__all__) & set(types.__all__)
    for name in set(coordlock.__all__) & set(errors.__all__):
        assert getattr(coordlock, name) is getattr(errors, name)


if __name__ == "__main__":
    STUB.write_text(derived_stub(), "utf-8")
    ERRORS_PAGE.write_text(derived_errors_page(), "utf-8")
    RECORD.write_text("\n".join(lines()) + "\n", "utf-8")
    for module in MODULES[:3]:
        print(f"{module.__name__} ({len(module.__all__)}): {', '.join(module.__all__)}")
