"""The pictures are as the scripts draw them, and readable on light and on dark pages."""

from __future__ import annotations

import re

import pytest

from scripts.pictures.__main__ import DIRECTORY, PICTURES
from tests.docs.pages import PAGES, page


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_its_script_draws_it(name: str) -> None:
    assert (DIRECTORY / name).read_text("utf-8") == PICTURES[name](), (
        "draw it again: python -m scripts.pictures"
    )


def test_every_picture_is_shown_with_words_for_those_who_do_not_see_it() -> None:
    shown = {
        target: words
        for name in PAGES
        for words, target in re.findall(r"!\[([^\]]*)\]\(\S*pictures/([\w-]+\.svg)\)", page(name))
    }
    assert {file.name for file in DIRECTORY.iterdir()} == PICTURES.keys()
    assert shown.keys() == PICTURES.keys()
    assert all(len(words) > 20 for words in shown.values())
