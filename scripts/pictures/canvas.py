"""What every picture is made of: text, boxes and arrows in colours of two schemes.

A picture has its own background, dark where the reader prefers dark pages. So it stays readable
also on a page that does not follow that preference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 860

#: The colours by their roles: on a light page, on a dark one.
COLOURS: Final = {
    "paper": ("#ffffff", "#161b22"),
    "ink": ("#1f2933", "#e6edf3"),
    "muted": ("#52606d", "#9da9b5"),
    "pale": ("#9aa5b1", "#6b7683"),
    "card": ("#f1f4f8", "#222a34"),
    "pause": ("#d9dee4", "#3a434e"),
    "bad": ("#b42318", "#ff7b72"),
    "good": ("#18794e", "#56d392"),
    "a": ("#c7d7f5", "#2b4a80"),
    "b": ("#f6dfb4", "#6b4e16"),
    "c": ("#d5ecd4", "#285239"),
}
_LIGHT, _DARK = 0, 1


def _scheme(which: int) -> str:
    return "".join(
        f".{role}{{fill:{both[which]}}}.s-{role}{{stroke:{both[which]}}}"
        for role, both in COLOURS.items()
    )


STYLE: Final = (
    f"<style>{_scheme(_LIGHT)}\n@media (prefers-color-scheme: dark){{{_scheme(_DARK)}}}</style>"
)
_TIP: Final = (
    '<marker id="{0}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto"><path class="{0}" d="M0 0 L10 5 L0 10 z"/></marker>'
)
_TIPS: Final = "".join(_TIP.format(role) for role in ("ink", "muted", "bad"))


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def text(
    x: float,
    y: float,
    words: str,
    role: str = "ink",
    *,
    size: int = 13,
    anchor: str = "middle",
    bold: bool = False,
    code: bool = False,
    on: str = "",
) -> str:
    """Words at a point of their base line; ``on`` is the colour below them, which hides lines."""
    names = role
    more = ' font-weight="600"' if bold else ""
    if code:
        more += ' font-family="ui-monospace, monospace"'
    if on:
        names += f" s-{on}"
        more += ' stroke-width="5" stroke-linejoin="round" paint-order="stroke"'
    return (
        f'<text class="{names}" x="{_number(x)}" y="{_number(y)}" font-size="{size}" '
        f'text-anchor="{anchor}"{more}>{escape(words)}</text>'
    )


def box(
    x: float, y: float, width: float, height: float, role: str, *, edge: str = "", dashes: str = ""
) -> str:
    """A filled box with round corners; with an ``edge`` in that colour, where one is given."""
    line = f" s-{edge}" if edge else ""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<rect class="{role}{line}" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" '
        f'height="{_number(height)}" rx="5"{dashed}/>'
    )


def path(route: str, role: str, *, tip: bool = False, dashes: str = "", width: float = 1.5) -> str:
    """A line along ``route``, in the words of SVG; an arrow if it has a ``tip``."""
    more = f' marker-end="url(#{role})"' if tip else ""
    if dashes:
        more += f' stroke-dasharray="{dashes}"'
    return f'<path class="s-{role}" d="{route}" fill="none" stroke-width="{width}"{more}/>'


def arrow(
    x1: float, y1: float, x2: float, y2: float, role: str = "ink", *, dashes: str = ""
) -> str:
    """A straight arrow."""
    ends = f"M{_number(x1)} {_number(y1)} L{_number(x2)} {_number(y2)}"
    return path(ends, role, tip=True, dashes=dashes)


def picture(title: str, height: float, parts: Iterable[str]) -> str:
    """The whole picture. ``title`` is read to those who don't see it."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {_number(height)}" '
            'role="img" font-family="system-ui, sans-serif">',
            f"<title>{escape(title)}</title>",
            STYLE,
            f"<defs>{_TIPS}</defs>",
            f'<rect class="paper" width="{WIDTH}" height="{_number(height)}" rx="8"/>',
            *parts,
            "</svg>\n",
        ]
    )
