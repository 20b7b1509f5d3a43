"""Imports go one way: the library is made of rooms, and each imports only from those below it."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

import coordlock
from tests.unit.test_imports import imported_packages

CORE: Final = Path(coordlock.__file__).parent
BACKENDS: Final = CORE.parent / "backends"
TESTBED: Final = CORE.parent / "testbed"

#: The rooms of the library, the lowest first: each imports only from those before it.
ROOMS: Final = (
    *(
        "errors",
        "runtime",
        "settings",
        "model",
        "backend",
        "kernel",
        "records",
        "locks",
        "recipes",
        "work",
        "jobs",
    ),
    "client",
)
#: Its names are those of the client, and of what that makes.
FRONT: Final = ("coordlock", "coordlock.types")
#: What stands beside them: which rooms each imports, besides itself.
BESIDE: Final = {
    "fencing": {"errors", "runtime", "model"},
    "cli": {*ROOMS, "fencing", "telemetry"},
    # The public API, and what checks the functions that users give.
    "integrations": {"client", "errors", "fencing", "runtime", "settings", "testing"},
    # It reads what is in the service as operators do, many queues at a time.
    "telemetry": {*ROOMS},
    "testing": {*ROOMS, "fencing"},
}
#: What backends import.
BELOW: Final = {"errors", "runtime", "settings", "model", "backend"}
#: What the testbed imports: no kernel, and no command line.
OF_THE_CORE: Final = {*ROOMS, "fencing", "testing"} - {"kernel"}
#: And at most so many modules of the backends, for what is stored in a service, and how.
OF_BACKENDS: Final = 8
#: What the library and the testbed never import.
ABOVE: Final = {"bench", "scripts", "tests"}


def modules(package: Path) -> dict[str, Path]:
    """The modules in and below a package, by their full names."""
    return {
        ".".join(file.relative_to(package.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): file
        for file in package.rglob("*.py")
    }


@cache
def statements(file: Path) -> list[ast.Import | ast.ImportFrom]:
    """All imports of a file, in functions too."""
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(file: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Which of the ``known`` modules a file imports."""
    for node in statements(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        else:
            for alias in node.names:
                names = (f"{node.module}.{alias.name}", f"{node.module}")
                yield from [name for name in names if name in known][:1]


MODULES: Final = modules(CORE)


def below(name: str) -> list[str]:
    """The module of that name, or the modules of that package."""
    return [module for module in MODULES if f"{module}.".startswith(f"coordlock.{name}.")]


def is_allowed(imported: str, allowed: set[str]) -> bool:
    """Whether ``imported`` is in one of the ``allowed`` rooms."""
    if imported in FRONT:
        return "client" in allowed
    return imported.split(".")[1] in allowed


def test_every_module_has_a_room() -> None:
    known = {name.split(".")[1] for name in MODULES if "." in name}
    assert {*ROOMS, *BESIDE} == known - {"types", "__main__"}  # which is the command line


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_those_below_it(room: str) -> None:
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for module in below(room):
        for imported in imports(MODULES[module], MODULES):
            assert is_allowed(imported, allowed), f"{module} imports {imported}"


@pytest.mark.parametrize("package", BESIDE)
def test_a_package_beside_the_layers_imports_only_what_it_may(package: str) -> None:
    for module in below(package):
        for imported in imports(MODULES[module], MODULES):
            assert is_allowed(imported, BESIDE[package] | {package}), f"{module}: {imported}"


@pytest.mark.parametrize("backend", sorted(path.name for path in BACKENDS.iterdir()))
def test_a_backend_imports_the_contract_and_what_is_below_it(backend: str) -> None:
    for name, file in modules(BACKENDS / backend).items():
        for imported in imports(file, MODULES):
            assert is_allowed(imported, BELOW), f"{name} imports {imported}"


def test_the_testbed_imports_what_others_build_on_and_little_of_the_backends() -> None:
    known = dict(MODULES)
    for backend in BACKENDS.iterdir():
        known |= modules(backend)
    of_backends: set[str] = set()
    for name, file in modules(TESTBED).items():
        for imported in imports(file, known):
            if imported in MODULES:
                assert is_allowed(imported, OF_THE_CORE), f"{name} imports {imported}"
            else:
                of_backends.add(imported)
    assert len(of_backends) <= OF_BACKENDS, of_backends


@pytest.mark.parametrize(
    ("package", "above"),
    [(CORE, ABOVE | {"testbed"}), (BACKENDS, ABOVE | {"testbed"}), (TESTBED, ABOVE)],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_no_tests_and_no_tools_are_imported_from_below(package: Path, above: set[str]) -> None:
    for file in package.rglob("*.py"):
        assert not above.intersection(imported_packages(file.read_text("utf-8"))), file


def test_the_wheel_has_the_library_alone() -> None:
    project = tomllib.loads((CORE.parent / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    backends = [f"backends/{package.name}" for package in BACKENDS.iterdir()]
    assert sorted(wheel["packages"]) == sorted(["coordlock", *backends])


@pytest.mark.parametrize(
    "package", [CORE, TESTBED, *sorted(BACKENDS.iterdir())], ids=lambda package: package.name
)
def test_no_modules_import_each_other_in_a_circle(package: Path) -> None:
    known = modules(package)
    graph = {name: set(imports(file, known)) - {name} for name, file in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        pytest.fail(" <- ".join(cycle.args[1]))
