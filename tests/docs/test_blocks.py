"""The documentation's blocks run, page by page.

``python`` blocks run in the page's namespace. What one prints is compared with the ``text`` block
that follows it, in which ``...`` stands for anything.

``console`` blocks run the lines behind ``$ `` with sh. The lines between them are their output,
compared in the same way. A command must succeed, unless ``$ echo $?`` follows it.

``toml`` blocks must be a configuration that coordlock takes.

``yaml`` and ``ini`` blocks must parse, and what they start with coordlock must be a command of it.

``java`` blocks are compiled and used by ``tests/integration/test_interop_curator.py``.

* A block whose first line is a comment with a file name, such as ``# worker.py``, is that file. It
  is written to the page's directory, which is new and the working directory of all that runs.
* Hosts with port 2379 stand for the tests' etcd, those with port 2181 for their ZooKeeper, those
  with port 6379 for their Redis, and those with port 5432 for their PostgreSQL, whose database
  ``app`` belongs to ``owner`` and is used by ``app``.
* ``<!-- not run: the reason -->`` in the line before a block says that it does not run, and why.
"""

from __future__ import annotations

import configparser
import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import sqlalchemy
import yaml

import coordlock
from coordlock.backend.config import NOT_CONFIGURED, configure
from coordlock.cli.command_table import COMMANDS, below
from testbed.servers.postgres import Postgres
from tests.docs.pages import PAGES, REPOSITORY, Block, blocks, page, parse

LANGUAGES: Final = {"python", "console", "toml", "text", "java", "yaml", "ini"}
PORTS: Final = {"etcd": 2379, "postgres": 5432, "redis": 6379, "zookeeper": 2181}
#: Readers sit at a terminal, where this is not said.
_NOT_SAID: Final = re.compile(rf"^(coordlock: )?{re.escape(NOT_CONFIGURED)}\n", re.MULTILINE)
#: How many blocks of each page do not run. A page that is not listed runs whole.
NOT_RUN: Final = {
    "README.md": 1,
    "CONTRIBUTING.md": 3,
    "docs/backends/local.md": 1,
    "docs/backends/redlock.md": 1,
    "docs/how-to/locks-and-transactions.md": 2,
    "docs/how-to/monitor.md": 3,
    "docs/how-to/write-a-backend.md": 1,
    "docs/integrations/celery.md": 1,
    "docs/integrations/django.md": 2,
    "docs/reliability.md": 1,
    "docs/tutorial.md": 2,
}


def _hosts(port: int) -> re.Pattern[str]:
    return re.compile(rf"[\w.-]+:{port}(?:,[\w.-]+:{port})*")


def _services(name: str) -> list[str]:
    """The services that the blocks of a page speak to."""
    text = "".join(block.text for block in blocks(name) if not block.not_run)
    return [service for service, port in PORTS.items() if _hosts(port).search(text)]


def _marked(name: str) -> Any:
    return pytest.param(name, marks=[getattr(pytest.mark, one) for one in _services(name)], id=name)


class Run:
    """One page that runs, block by block."""

    def __init__(self, blocks: list[Block], servers: dict[str, str]) -> None:
        self.blocks = blocks
        self.servers = servers
        self.namespace: dict[str, Any] = {"__name__": "__main__"}

    def all(self) -> None:
        """Run every block; close the clients and the databases that are left open."""
        try:
            self._all()
        finally:
            for value in self.namespace.values():
                if isinstance(value, coordlock.Client):
                    value.close()
                elif isinstance(value, sqlalchemy.Engine):
                    value.dispose()

    def _all(self) -> None:
        for number, block in enumerate(self.blocks):
            if block.not_run:
                continue
            if block.file:
                Path(block.file).write_text(self._text(block), "utf-8")
            elif block.language == "python":
                printed = self._python(block)
                if printed:
                    following = [one for one in self.blocks[number + 1 :][:1] if one.is_output]
                    assert following, f"{block.place} prints, and no text block follows: {printed}"
                    _compare(following[0].place, following[0].text, printed)
            elif block.language == "console":
                self._console(block)

    def _text(self, block: Block) -> str:
        text = block.text
        for service, hosts in self.servers.items():
            text = _hosts(PORTS[service]).sub(hosts, text)
        return text

    def _python(self, block: Block) -> str:
        # The empty lines make the line numbers of tracebacks those of the page.
        source = "\n" * (block.line - 1) + self._text(block)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, str(REPOSITORY / block.page), "exec"), self.namespace)
        return printed.getvalue()

    def _console(self, block: Block) -> None:
        status = 0
        commands = re.split(r"^\$ ", self._text(block), flags=re.MULTILINE)
        assert commands[0] == "", f"{block.place} does not start with '$ '"
        for number, text in enumerate(commands[1:], 1):
            # A command goes on behind a backslash, and behind a prompt "> " for more.
            lines = text.splitlines()
            end = next(i for i, line in enumerate(lines, 1) if not line.endswith("\\"))
            command = "\n".join(line.removeprefix("> ") for line in lines[:end])
            wanted = "\n".join(lines[end:])
            done = subprocess.run(
                ["sh", "-c", f"(exit {status})\n{command}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=100,
                check=False,
            )
            status = done.returncode if done.returncode >= 0 else 128 - done.returncode
            asked_for = any(next.startswith("echo $?\n") for next in commands[number + 1 :][:1])
            assert status == 0 or asked_for, f"{block.place}: {command}: {status}: {done.stdout}"
            _compare(f"{block.place}: {command}", wanted, _NOT_SAID.sub("", done.stdout))


def _compare(place: str, wanted: str, got: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    same = doctest.OutputChecker().check_output(wanted.strip(), got.strip(), flags)
    assert same, f"{place}\nshows\n{wanted}\nand got\n{got}"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, in which coordlock finds no configuration but the page's."""
    for variable in ("COORDLOCK_URL", "COORDLOCK_CONFIG", "COORDLOCK_REACH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize("name", [_marked(name) for name in PAGES])
def test_the_blocks_of_a_page_run(
    name: str, directory: Path, request: pytest.FixtureRequest
) -> None:
    servers = {service: _address(request.getfixturevalue(service)) for service in _services(name)}
    Run(blocks(name), servers).all()


def _address(server: Any) -> str:
    if not isinstance(server, Postgres):
        return str(urlsplit(server.url).netloc)
    with server.administrator() as admin:
        for statement in (
            "DROP DATABASE IF EXISTS app WITH (FORCE)",
            "DROP ROLE IF EXISTS owner, app",
            "CREATE ROLE owner LOGIN",
            "CREATE ROLE app LOGIN",
            "CREATE DATABASE app OWNER owner",
        ):
            admin.execute(statement.encode())
    return f"{server.host}:{server.port}"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("a python block raises", "```python\n1 / 0\n```\n"),
        ("it prints something else", "```python\nprint(1)\n```\n```text\n2\n```\n"),
        ("it prints, and nothing is shown", "```python\nprint(1)\n```\n"),
        ("a command fails", "```console\n$ false\n```\n"),
        ("a command prints something else", "```console\n$ echo 1\n2\n```\n"),
        ("the status is another", "```console\n$ (exit 3)\n$ echo $?\n4\n```\n"),
        ("there is no prompt", "```console\necho 1\n```\n"),
    ],
)
def test_a_page_that_is_wrong_is_noticed(wrong: str, text: str, directory: Path) -> None:
    with pytest.raises((AssertionError, ZeroDivisionError)):
        Run(parse(wrong, text), {}).all()


def test_a_page_that_is_right_passes(directory: Path) -> None:
    text = (
        "```python\n# part.py\nprint('from a file')\n```\n"
        "```console\n$ python part.py\nfrom ...\n$ (exit 3)\n$ echo $?\n3\n```\n"
        "```python\nx = 1\n```\n```python\nprint(x)\n```\n```text\n1\n```\n"
        "<!-- not run: it fails -->\n```console\n$ false\n```\n"
    )
    Run(parse("right", text), {}).all()


@pytest.mark.parametrize("name", PAGES)
def test_every_block_has_a_language_that_is_checked(name: str) -> None:
    for block in blocks(name):
        assert block.language in LANGUAGES, block.place
    assert page(name).count("```") == 2 * len(blocks(name)), "a block that was not recognized"


def test_blocks_that_do_not_run_are_counted() -> None:
    found = Counter(block.page for name in PAGES for block in blocks(name) if block.not_run)
    assert dict(found) == NOT_RUN


@pytest.mark.parametrize("name", PAGES)
def test_every_configuration_that_is_shown_can_be_used(name: str) -> None:
    for block in blocks(name):
        if block.language == "toml":
            fields = tomllib.loads(block.text)
            tool = fields.get("tool", {}).get("coordlock")
            if tool or "project" not in fields:
                assert configure(tool or fields).scheme, block.place


@pytest.mark.parametrize("name", PAGES)
def test_every_command_that_a_manifest_or_a_unit_starts_can_be_used(name: str) -> None:
    for block in blocks(name):
        if block.language in ("yaml", "ini"):
            found = list(_commands(block))
            assert found or "coordlock" not in block.text, block.place
            for words in found:
                command = COMMANDS[words.pop(0)]
                while below(command):
                    command = COMMANDS[f"{command.path} {words.pop(0)}"]
                values, rest = command.read(words)  # raises for what it does not know
                assert rest or values.get("http"), block.place
                # It counts from a loss, and not from a pod's end, as readers of manifests assume.
                assert "--grace" not in block.text, block.place


def _commands(block: Block) -> Iterator[list[str]]:
    """The words after ``coordlock`` of all commands that a manifest or a unit starts."""
    if block.language == "ini":
        unit = configparser.ConfigParser(interpolation=None)
        unit.read_string(block.text)
        commands = [shlex.split(unit["Service"]["ExecStart"])]
    else:
        commands = []
        left: list[Any] = list(yaml.safe_load_all(block.text))
        while left:
            match left.pop():
                case {"command": [*command]}:
                    commands.append([str(word) for word in command])
                case dict() as fields:
                    left += fields.values()
                case [*entries]:
                    left += entries
    for program, *words in commands:
        if Path(program).name == "coordlock":
            yield words


@pytest.mark.parametrize("name", PAGES)
def test_every_url_that_is_shown_can_be_used(name: str) -> None:
    for url in re.findall(r"\b(?:etcd|zookeeper|local|memory)://[^\s`'\"|<>)]+", page(name)):
        if "..." not in url:
            assert configure(url).scheme, url
