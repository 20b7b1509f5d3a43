"""The pictures are as their scripts draw them."""

from __future__ import annotations

from scripts import draw_fencing


def test_the_picture_of_fencing_is_as_its_script_draws_it() -> None:
    assert draw_fencing.PICTURE.read_text("utf-8") == draw_fencing.picture()
