"""The reference says what the code says."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

import coordlock
from coordlock import errors
from coordlock.backend.registry import backend_for_scheme, schemes
from coordlock.cli.exits import Exit
from coordlock.integrations.statuses import refusal_of
from coordlock.model.claim import Mode
from coordlock.settings import COMMON_OPTIONS, TLS_OPTIONS, Option
from tests.docs import api_page, command_page
from tests.docs.pages import PAGES, REPOSITORY, page, rows
from tests.unit.test_api import FOR_APPLICATIONS

CONFIGURATION = "docs/reference/configuration.md"
ERRORS = "docs/reference/errors.md"


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


def test_the_readme_says_which_backend_can_do_what() -> None:
    kinds = {scheme: backend_for_scheme(scheme) for scheme in schemes()}
    services = [
        scheme
        for scheme, kind in kinds.items()
        if not any(kind is not other and issubclass(kind, other) for other in kinds.values())
    ]
    table = {
        re.findall(r"\[(\w+)\]", row[0])[0].lower(): row
        for row in rows("README.md", "## What there is")
    }
    assert sorted(table) == services
    for name, (_, has_tokens, keeps_tokens, _) in table.items():
        can = backend_for_scheme(name).capabilities
        assert (has_tokens, keeps_tokens) == (_yes(can.fenced), _yes(can.durable)), name
        assert (name == "redlock") != (can.ordered and can.sets and can.publishing and can.data)


def _yes(can: bool) -> str:
    return "yes" if can else "no"


def test_the_options_of_every_backend_are_documented() -> None:
    assert rows(CONFIGURATION, "### Of every backend") == _table(COMMON_OPTIONS)


def test_the_options_for_tls_are_documented() -> None:
    assert rows(CONFIGURATION, "### Of TLS") == _table(TLS_OPTIONS)


#: The schemes whose options stand in one table, below the heading of the first.
TOGETHER: Final = {
    "postgresql": ("postgresql", "postgres", "postgresql+psycopg"),
    "redis": ("redis", "rediss", "redis+unix", "valkey"),
}


@pytest.mark.parametrize(
    "scheme", sorted({*schemes()} - {other for _, *others in TOGETHER.values() for other in others})
)
def test_the_options_of_a_backend_are_documented(scheme: str) -> None:
    together = TOGETHER.get(scheme, (scheme,))
    own = {
        option.name: option
        for one in together
        for option in backend_for_scheme(one).options
        if option not in TLS_OPTIONS
    }
    assert rows(CONFIGURATION, f"### Of {scheme}://") == _table(list(own.values()))


def test_the_backends_that_speak_tls_are_named() -> None:
    speak = [
        scheme
        for scheme in schemes()
        if set(TLS_OPTIONS) <= set(backend_for_scheme(scheme).options)
    ]
    *others, last = [f"`{scheme}://`" for scheme in speak]
    assert f"For {', '.join(others)} and {last}." in page(CONFIGURATION)


def test_what_every_backend_declares_is_documented() -> None:
    shown = {
        scheme: cells
        for names, *cells in rows(CONFIGURATION, "## Backends")
        for scheme in re.findall(r"`([a-z+]+)://`", names)
    }
    assert sorted(shown) == sorted(schemes())
    for scheme, cells in shown.items():
        backend = backend_for_scheme(scheme)
        can = backend.capabilities
        assert cells == [
            can.reach,
            _yes(can.leased),
            _yes(can.durable),
            str(backend.default_port or "none"),
            f"`{backend.default_root}`" if backend.default_root else "none",
        ]


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
    named = {name for cell in cells for name in re.findall(r"`(?:types\.)?(\w+)`", cell)}
    modules = map(importlib.import_module, FOR_APPLICATIONS)
    wanted = {name for module in modules for name in module.__all__}
    assert wanted - named == set(errors.__all__)


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


def test_the_exit_statuses_of_the_command_line_are_those_of_the_code() -> None:
    shown = [row[0] for row in rows("docs/command-line.md", "## Exit statuses")]
    assert shown == [*(str(int(status)) for status in sorted(Exit)), "128+N"]


def _texts() -> Iterator[str]:
    """Every literal text of the library; what an f-string fills in is a NUL."""
    for folder in ("coordlock", "backends"):
        for file in sorted((REPOSITORY / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                match node:
                    case ast.Constant(value=str(text)):
                        yield text
                    case ast.JoinedStr(values=parts):
                        yield "".join(
                            str(part.value) if isinstance(part, ast.Constant) else "\0"
                            for part in parts
                        )


def test_the_messages_that_troubleshooting_explains_are_real() -> None:
    shown = re.findall(r"^### `(.*)`$", page("docs/troubleshooting.md"), re.MULTILINE)
    assert len(shown) > 15
    texts = "\n".join(_texts())
    for message in shown:
        if message[0].isupper():
            continue  # a symptom, in the reader's words
        for part in filter(None, map(str.strip, message.split("..."))):
            assert part in texts, (message, part)


def test_409_is_on_all_pages_the_answer_to_a_stale_token_and_to_nothing_else() -> None:
    refusal = refusal_of(coordlock.AcquireTimeout("x", 1.0))
    assert refusal is not None
    assert refusal.status == 423
    for name in [name for name in PAGES if "/design/" not in name]:
        for paragraph in re.split(r"\n\s*\n|\n(?=[-|])", page(name)):
            if re.search(r"\b409\b", paragraph):
                assert "stale" in paragraph.casefold() or "StaleToken" in paragraph, name
