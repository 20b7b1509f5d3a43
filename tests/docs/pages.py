"""The pages of the documentation as data: their blocks, their links, their tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PAGES", "REPOSITORY", "Block", "blocks", "links", "page", "parse", "rows"]

REPOSITORY: Final = Path(__file__).parents[2]

#: Every page, as a path below the repository.
PAGES: Final = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *sorted(str(file.relative_to(REPOSITORY)) for file in (REPOSITORY / "docs").rglob("*.md")),
)

_FENCE: Final = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN: Final = re.compile(r"<!-- not run: (\S.*?) -->\n\Z")
_FILE: Final = re.compile(r"# ([\w-]+\.(?:py|toml))\n")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block: its page, the line of its first line of text, its language and text."""

    page: str
    line: int
    language: str
    text: str
    #: Why it is not run, from a comment ``<!-- not run: ... -->`` in the line before it.
    not_run: str | None

    @property
    def file(self) -> str | None:
        """The file that this block shows, named by a comment in its first line."""
        named = _FILE.match(self.text)
        return named[1] if named else None

    @property
    def is_output(self) -> bool:
        """Whether this may be what the block before it prints."""
        return self.language == "text"

    @property
    def place(self) -> str:
        """Where it is, for failures."""
        return f"{self.page}:{self.line}"


def page(name: str) -> str:
    """The text of a page."""
    return (REPOSITORY / name).read_text("utf-8")


def blocks(name: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return parse(name, page(name))


def parse(name: str, text: str) -> list[Block]:
    """The fenced blocks of ``text``, which is the page ``name``."""
    found = []
    for fence in _FENCE.finditer(text):
        reason = _NOT_RUN.search(text, 0, fence.start())
        found.append(
            Block(
                page=name,
                line=text.count("\n", 0, fence.start()) + 2,
                language=fence[1],
                text=fence[2],
                not_run=reason[1] if reason else None,
            )
        )
    return found


def links(name: str) -> Iterator[str]:
    """The targets of a page's links, outside of its blocks."""
    for link in _LINK.finditer(_FENCE.sub("", page(name))):
        yield link[1]


def rows(name: str, heading: str) -> list[list[str]]:
    """The rows of the first table below ``heading`` in a page, without its head."""
    _, found, section = page(name).partition(f"\n{heading}\n")
    assert found, f"{name} has no heading {heading!r}"
    table = re.search(
        r"(?:^\|.*\n)+", re.split(r"^#", section, flags=re.MULTILINE)[0], re.MULTILINE
    )
    lines = table[0].splitlines() if table else []
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]
