"""The check of the pages' prose finds what is planted, and the pages pass it."""

from __future__ import annotations

import pytest

from scripts.prose import find, pages
from tests.docs.pages import PAGES, page

LONG = " ".join(["word"] * 31) + "."


@pytest.mark.parametrize(
    "planted",
    [
        LONG,
        "x" * 121,
        "The lock shall be held.",
        "- Whoever waits is granted the lock.",
        "| a | the holder is told |",
    ],
)
def test_what_is_hard_to_read_is_found(planted: str) -> None:
    text = f"# Title\n\nA short sentence.\n\n{planted}\n"
    assert {line for line, _ in find(text)} == {5}
    assert list(find(text.replace(planted, f"<!-- prose: a quotation -->\n{planted}"))) == []


def test_code_is_not_read() -> None:
    assert list(find(f"```text\n{LONG}\n```\n")) == []


def test_the_pages_are_easy_to_read() -> None:
    assert [(page.name, found) for page in pages() for found in find(page.read_text("utf-8"))] == []


def test_the_pages_stay_few_and_short() -> None:
    read_by_users = [name for name in PAGES if name.startswith("docs/") and "/design/" not in name]
    assert len(read_by_users) <= 57
    assert sum(len(page(name).split()) for name in read_by_users) <= 52_000
    assert len(page("README.md").split()) <= 900
