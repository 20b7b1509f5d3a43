"""Finds sentences and lines that are too long, and words that hide the actor.

Run it by ``python -m scripts.prose``.

A comment ``<!-- prose: why -->`` in the line before a paragraph excuses it. Pages that are
generated are not read, nor are code blocks. In tables only the riddles count.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["find", "pages"]

REPOSITORY: Final = Path(__file__).resolve().parents[1]
WORDS_OF_A_SENTENCE: Final = 30
COLUMNS: Final = 120

GENERATED: Final = (
    "docs/reference/api.md",
    "docs/reference/command-line.md",
)

#: Pages that are not checked yet. Take a page off once it is rewritten; the list ends empty.
NOT_YET: Final = ()

#: What style.md calls riddles, as far as a pattern can tell them from plain words.
RIDDLES: Final = {
    re.compile(pattern, re.IGNORECASE): advice
    for pattern, advice in {
        r"\bshall\b": "say must, or name the actor",
        r"\bwho(?:so)?ever\b": "name the actor",
        r"(?:^|[.:;] )Who (?!is\b|was\b|has\b|are\b|leads\b)[^?]*$": "name the actor",
        r"\bthere are none\b|\bis none\b|\bof none\b": "name what is missing",
        r"\bso many\b(?! as)": "say how many",
        r"\bends? so\b|\bso, too\b": "say how",
        r"\bas it was(?=[.,;:)])": "say what it was",
        r"\b(?:is|are|be|when|unless) told\b|\bwas told (?!to\b)": "name who tells, or say learns",
        r"\bgets on\b|\bgo(?:es)? on\b|\bfor good\b|\bby and by\b|\bas far as\b": "say it plainly",
        r"\bnobody\b(?=[^.]*\bwho\b)": "name the actor",
    }.items()
}

_FENCE: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_EXCUSE: Final = re.compile(r"^<!-- prose: \S.*-->$")
_ITEM: Final = re.compile(r" *(?:[-*]|\d+\.) ")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE: Final = re.compile(r"(?<=[.!?])[)\"*]* +|(?<=[:;]) +(?=[^a-z])")


def pages() -> Iterator[Path]:
    """The pages that are checked."""
    written = sorted((REPOSITORY / "docs").rglob("*.md"))
    for page in (
        *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *written,
    ):
        if not str(page.relative_to(REPOSITORY)).startswith((*GENERATED, *NOT_YET)):
            yield page


def find(text: str) -> Iterator[tuple[int, str]]:
    """What is wrong in a page, each with the number of its line."""
    blank = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for first, block in _paragraphs(blank):
        if block[0].startswith("    ") and not _ITEM.match(block[0]):
            continue  # code
        prose = [line for line in block if not line.lstrip().startswith(("|", "<", "#", "!"))]
        for number, line in enumerate(block, first):
            if line in prose and len(_LINK.sub(r"\1", line)) > COLUMNS:
                yield number, f"a line of {len(line)} columns"
        for sentence in _SENTENCE.split(_LINK.sub(r"\1", " ".join(line.strip() for line in prose))):
            if len(sentence.split()) > WORDS_OF_A_SENTENCE:
                yield first, f"a sentence of {len(sentence.split())} words: {sentence[:60]}..."
        for riddle, advice in RIDDLES.items():
            if found := riddle.search(re.sub(r"`[^`]*`", "x", " ".join(block))):
                yield first, f"{found[0].strip()!r}: {advice}"


def _paragraphs(text: str) -> Iterator[tuple[int, list[str]]]:
    """Paragraphs, items of lists and rows of tables, each with the number of its first line."""
    first, block, is_excused = 1, list[str](), False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if (
            not line.strip()
            or _ITEM.match(line)
            or line.startswith(("|", "#"))
            or _EXCUSE.match(line)
        ):
            if block and not is_excused:
                yield first, block
            if block or not line.strip():
                is_excused = False
            block = []
        if _EXCUSE.match(line):
            is_excused = True
        elif line.strip():
            if not block:
                first = number
            block.append(line)


def main() -> int:
    """Print what is wrong, and return how a process ends for it."""
    found = [
        f"{page.relative_to(REPOSITORY)}:{number}: {problem}"
        for page in pages()
        for number, problem in find(page.read_text("utf-8"))
    ]
    print("\n".join(found) or "prose: nothing to mend")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
