"""The pictures are as the scripts draw them, and readable on light and on dark pages."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from scripts.pictures.__main__ import DIRECTORY, PICTURES
from scripts.pictures.canvas import COLOURS
from tests.docs.pages import PAGES, page


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_its_script_draws_it(name: str) -> None:
    assert (DIRECTORY / name).read_text("utf-8") == PICTURES[name](), (
        "draw it again: python -m scripts.pictures"
    )


@pytest.mark.parametrize("name", PICTURES)
def test_the_words_of_a_picture_stay_inside_of_it(name: str) -> None:
    root = ElementTree.fromstring(PICTURES[name]())
    width, height = map(float, str(root.get("viewBox")).split()[2:])
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        # Letters of common fonts are about 0.55 of their size wide, of monospaced ones 0.61.
        letter = 0.61 if text.get("font-family") else 0.55
        long = len(text.text or "") * float(str(text.get("font-size"))) * letter
        before = {"start": 0.0, "middle": long / 2, "end": long}[str(text.get("text-anchor"))]
        x, y = float(str(text.get("x"))), float(str(text.get("y")))
        assert x - before >= 0, text.text
        assert x - before + long <= width, text.text
        assert 0 <= y <= height, text.text


def test_every_picture_is_shown_with_words_for_those_who_do_not_see_it() -> None:
    shown = {
        target: words
        for name in PAGES
        for words, target in re.findall(r"!\[([^\]]*)\]\(\S*pictures/([\w-]+\.svg)\)", page(name))
    }
    assert {file.name for file in DIRECTORY.iterdir()} == PICTURES.keys()
    assert shown.keys() == PICTURES.keys()
    assert all(len(words) > 20 for words in shown.values())


def _light(colour: str) -> float:
    """How light a colour is, from 0 to 1, as the Web's guidelines for contrast measure it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("words", "below"),
    [
        *(("ink", one) for one in ("paper", "card", "pause", "a", "b", "c")),
        *((one, "paper") for one in ("muted", "bad", "good")),
        ("muted", "card"),
    ],
)
def test_words_stand_out_from_what_is_below_them(words: str, below: str, scheme: int) -> None:
    light = [_light(COLOURS[role][scheme]) for role in (words, below)]
    assert (max(light) + 0.05) / (min(light) + 0.05) >= 4.5
