"""The reference says what the code says."""

from __future__ import annotations

import dataclasses
import importlib
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

import pytest

from coordlock import errors
from coordlock.backend.registry import backend_for_scheme, schemes
from coordlock.cli.exits import Exit
from coordlock.model.claim import Mode
from coordlock.settings import COMMON_OPTIONS, TLS_OPTIONS, Option
from tests.docs import api_page, command_page
from tests.docs.pages import PAGES, REPOSITORY, page, rows
from tests.unit.test_api import FOR_APPLICATIONS, MODULES

CONFIGURATION = "docs/reference/configuration.md"
ERRORS = "docs/reference/errors.md"
MODULE_PAGES = REPOSITORY / "docs/reference/modules"


def _default(value: Any) -> str:
    match value:
        case None | "":
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case float():
            return f"`{value:g}s`"
        case _:
            return f"`{value}`"


def _accepted(option: Option) -> str:
    """What an option takes, in the words of the error for what it does not take."""
    try:
        option.parse(object())
    except ValueError as refused:
        accepted = str(refused)
    else:
        raise AssertionError(f"{option.name} takes anything")
    return accepted.removesuffix(", such as 15s, 500ms or 2m")


def _table(options: Sequence[Option]) -> list[list[str]]:
    return [
        [f"`{option.name}`", _accepted(option), _default(option.default), option.doc]
        for option in options
    ]


#: What each row of the README's table needs of a backend.
NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "exclusive locks": (),
    "first come, first served": ("ordered",),
    "fencing tokens": ("fenced",),
    "tokens that keep growing": ("durable",),
    "several locks": ("sets",),
    "locks that can be upgraded": ("publishing", "data"),
    "elections": ("publishing",),
    "values": ("data", "publishing"),
    "work queues": ("data", "ordered"),
}


def test_the_readme_says_which_backend_can_do_what() -> None:
    head = re.findall(r"^\| \| (.*) \|$", page("README.md"), re.MULTILINE)[0].split(" | ")
    kinds = {scheme: backend_for_scheme(scheme) for scheme in schemes()}
    services = [
        scheme
        for scheme, kind in kinds.items()
        if not any(kind is not other and issubclass(kind, other) for other in kinds.values())
    ]
    assert sorted(name.lower() for name in head) == services
    table = rows("README.md", "## What there is")
    for row in table[:-1]:
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", row[0])
        [needs] = [needs for name, needs in NEEDS.items() if words.startswith(name)]
        for name, cell in zip(head, row[1:], strict=True):
            can = backend_for_scheme(name.lower()).capabilities
            assert cell == ("yes" if all(getattr(can, need) for need in needs) else "no"), row
    assert len(table) == len(NEEDS) + 1


def test_the_options_of_every_backend_are_documented() -> None:
    assert rows(CONFIGURATION, "### Of every backend") == _table(COMMON_OPTIONS)


def test_the_options_for_tls_are_documented() -> None:
    assert rows(CONFIGURATION, "### Of TLS") == _table(TLS_OPTIONS)


@pytest.mark.parametrize("scheme", schemes())
def test_the_options_of_a_backend_are_documented(scheme: str) -> None:
    own = [one for one in backend_for_scheme(scheme).options if one not in TLS_OPTIONS]
    assert rows(CONFIGURATION, f"### Of {scheme}://") == _table(own)


def test_the_backends_that_speak_tls_are_named() -> None:
    speak = [
        scheme
        for scheme in schemes()
        if set(TLS_OPTIONS) <= set(backend_for_scheme(scheme).options)
    ]
    *others, last = [f"`{scheme}://`" for scheme in speak]
    assert f"For {', '.join(others)} and {last}." in page(CONFIGURATION)


def test_what_every_backend_declares_is_documented() -> None:
    declared = []
    for scheme in schemes():
        backend = backend_for_scheme(scheme)
        can = backend.capabilities
        declared.append(
            [
                f"`{scheme}://`",
                can.reach,
                "yes" if can.leased else "no",
                "yes" if can.durable else "no",
                "yes" if can.ordered else "no",
                "yes" if can.fenced else "no",
                str(backend.default_port or "none"),
                f"`{backend.default_root}`" if backend.default_root else "none",
            ]
        )
    assert rows(CONFIGURATION, "## Backends") == declared


def test_the_tree_of_errors_is_the_one_of_the_module() -> None:
    assert errors.__doc__ is not None
    tree = errors.__doc__.partition("::\n\n")[2].partition("\n\n")[0]
    shown = page(ERRORS).partition("```text\n")[2].partition("```")[0]
    assert [line[4:] for line in tree.splitlines()] == shown.splitlines()


def test_the_fields_of_every_error_are_documented() -> None:
    documented = sorted((row[0].strip("`"), row[1]) for row in rows(ERRORS, "## Fields"))
    wanted = {}
    for name in errors.__all__:
        error = getattr(errors, name)
        if dataclasses.is_dataclass(error):
            fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(error))
            wanted[name] = fields or "none"
    assert documented == sorted(wanted.items())


def test_the_overview_of_the_api_is_made_of_the_docstrings() -> None:
    assert page("docs/reference/api.md") == api_page.text(), (
        "make it again: python -m tests.docs.api_page"
    )


def test_the_reference_of_the_command_line_is_made_of_the_table_of_commands() -> None:
    assert page("docs/reference/command-line.md") == command_page.text(), (
        "make it again: python -m tests.docs.command_page"
    )


def test_the_overview_names_the_whole_api() -> None:
    cells = re.findall(r"^\| (`[^|]*`) \|", api_page.text(), re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    modules = map(importlib.import_module, FOR_APPLICATIONS)
    wanted = {name for module in modules for name in module.__all__}
    assert wanted - named == set(errors.__all__)


def test_every_public_module_has_a_page_of_the_site() -> None:
    pages = {file.stem: file.read_text("utf-8") for file in MODULE_PAGES.glob("*.rst")}
    assert {module.__name__ for module in MODULES} <= pages.keys()
    for name, text in pages.items():
        assert text.startswith(f"{name}\n{'=' * len(name)}\n\n.. automodule:: {name}\n")


def test_the_table_of_modes_is_the_matrix() -> None:
    table = rows("docs/concepts.md", "## Modes")
    marks = {"yes": False, "no": True}
    assert [[row[0], [marks[cell] for cell in row[1:]]] for row in table] == [
        [f"**{mine.name}**", [mine.conflicts(other) for other in Mode]] for mine in Mode
    ]


def test_every_command_that_is_named_exists() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "coordlock.cli", "--help"],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    ).stdout.partition("Commands:")[2]
    commands = set(re.findall(r"^  (\w+)", shown, re.MULTILINE))
    named = {
        command
        for name in PAGES
        for command in re.findall(r"(?:^\$ |`)coordlock ([a-z]+)\b", page(name), re.MULTILINE)
    }
    assert commands
    assert named <= commands


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Exit.NOT_ACQUIRED, "when the lock was not acquired"),
        (Exit.LOST, "when it was lost"),
        (Exit.UNAVAILABLE, "when the service cannot be reached"),
        (Exit.CONFIG, "for a bad configuration"),
        (Exit.USAGE, "for a wrong command line"),
    ],
)
def test_the_exit_statuses_of_the_readme_are_those_of_the_code(status: Exit, words: str) -> None:
    assert f"{status:d} {words}" in " ".join(page("README.md").split())
