"""What docstrings and pages name exists, and what stands twice is the same."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final, get_args

import pytest

import coordlock
from coordlock.backend import Backend, Capability
from coordlock.telemetry.metrics import METRICS
from coordlock.telemetry.survey import SERVICE_METRICS
from tests.docs.pages import PAGES, blocks, page, rows

PACKAGES: Final = (
    "coordlock",
    "coordlock_etcd",
    "coordlock_local",
    "coordlock_memory",
    "coordlock_zookeeper",
)
#: A reference to a class or to something of ours: `Name`, `Name.attribute`, `coordlock.module`.
_IN_DOCSTRING: Final = re.compile(r"(?<![`\w])`((?:[A-Z]\w*[a-z]|coordlock)\w*(?:\.\w+)*)`(?!`)")
#: A module of ours. A file and groups of entry points have such names, too.
_IN_PAGE: Final = re.compile(r"`(coordlock\w*(?:\.(?!toml|backends|clients)\w+)+)`")
GUIDE: Final = "docs/how-to/write-a-backend.md"
#: What clients make is annotated so: locks by type variables.
_PUBLIC: Final = {*coordlock.__all__, *coordlock.types.__all__}
MADE: Final = {
    "L",
    "M",
    *(name for name in _PUBLIC if f"Async{name}" in _PUBLIC),
}


@cache
def modules() -> tuple[ModuleType, ...]:
    """Every module of the library."""
    found = []
    for name in PACKAGES:
        package = importlib.import_module(name)
        below = pkgutil.walk_packages(package.__path__, f"{name}.")
        found.append(package)
        found += [
            importlib.import_module(one.name)
            for one in below
            if not one.name.endswith(("__main__", "django.models"))  # these need Django's settings
        ]
    return tuple(found)


@cache
def classes() -> dict[str, list[object]]:
    """What begins with a capital in some module of the library, or is built in, by its name."""
    found: dict[str, list[object]] = {}
    for module in (*modules(), builtins):
        for name, value in vars(module).items():
            if name[0].isupper():
                found.setdefault(name, []).append(value)
    return found


def exists(name: str) -> bool:
    """Whether ``name`` is a module, a class, an attribute of one, or a metric."""
    if name in {metric.name for metric in (*METRICS, *SERVICE_METRICS)}:
        return True
    first, *rest = name.split(".")
    found: list[object] = classes().get(first, [])
    if first in PACKAGES:
        found = [importlib.import_module(first)]

    for part in rest:
        found = [value for one in found for value in _attribute(one, part)]
    return bool(found)


def _attribute(owner: object, name: str) -> Iterator[object]:
    try:
        yield getattr(owner, name)
    except AttributeError:
        if isinstance(owner, ModuleType):
            with suppress(ImportError):
                yield importlib.import_module(f"{owner.__name__}.{name}")
        elif name in getattr(owner, "__annotations__", ()):
            yield None  # a field


def docstrings(module: ModuleType) -> Iterator[str]:
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def test_what_docstrings_name_exists() -> None:
    wrong = {
        f"{module.__name__}: {name}"
        for module in modules()
        for text in docstrings(module)
        for name in _IN_DOCSTRING.findall(text)
        if not exists(name)
    }
    assert wrong == set()


@pytest.mark.parametrize("name", PAGES)
def test_the_modules_that_pages_name_exist(name: str) -> None:
    assert [one for one in _IN_PAGE.findall(page(name)) if not exists(one)] == []


def test_the_modules_of_the_architecture_exist() -> None:
    cells = re.findall(r"^\| (`[^|]*`) \|", page("docs/architecture.md"), re.MULTILINE)
    names = [name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)]
    assert names
    assert [name for name in names if not exists(f"coordlock.{name}")] == []
    methods = re.findall(r"`([A-Z]\w+\.\w+)`", page("docs/architecture.md"))
    assert methods
    assert [name for name in methods if not exists(name)] == []


@pytest.mark.parametrize(
    "package", ["coordlock_etcd", "coordlock_etcd.transport", "coordlock_zookeeper"]
)
def test_the_table_of_a_package_has_all_of_its_modules(package: str) -> None:
    module = importlib.import_module(package)
    named = re.findall(r"^    (\w+)  +\S", module.__doc__ or "", re.MULTILINE)
    assert sorted(named) == sorted(one.name for one in pkgutil.iter_modules(module.__path__))


def test_the_guide_for_backends_has_the_methods_of_the_contract() -> None:
    methods = {
        name for name in vars(Backend) if name[0] != "_" and callable(getattr(Backend, name))
    }
    seven = {row[0].strip("`") for row in rows(GUIDE, "## The seven methods")}
    assert seven == Backend.__abstractmethods__
    others = rows(GUIDE, "## What some services can do besides")
    assert {row[0].strip("`") for row in others} == set(get_args(Capability))
    [databases] = re.findall(
        r"^- \*\*Databases\.\*\*.*?\n(?=- |\n)", page(GUIDE), re.MULTILINE | re.DOTALL
    )
    named = {
        name
        for text in (databases, *(row[1] for row in others))
        for name in re.findall(r"`(\w+)`", text)
    }
    assert methods - seven - {"require"} == named & methods - seven


def _made_by(method: Callable[..., object]) -> str:
    """The public name of what ``method`` returns, of whichever client it is."""
    return str(inspect.signature(method).return_annotation).removesuffix("T")


def test_the_concepts_have_what_clients_make() -> None:
    concepts = " ".join(page("docs/concepts.md").casefold().replace("-", " ").split())
    made = [
        name.replace("_", " ")
        for name, method in inspect.getmembers(coordlock.Client, inspect.isfunction)
        if name[0] != "_" and _made_by(method) in MADE
    ]
    assert {"lock", "multi lock", "work queue"} <= set(made)
    assert {word for word in made if word not in concepts} <= {"values", "lock by"}


def test_no_example_waits_busily() -> None:
    for name in PAGES:
        for block in blocks(name):
            assert not re.search(r"^ *while .*:\n +pass$", block.text, re.MULTILINE), block.place
