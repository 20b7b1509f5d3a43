"""The overview of the API, docs/reference/api.md, made of the first lines of docstrings.

After a change, write it anew with ``python -m tests.docs.api_page``.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from typing import Any, Final

import coordlock
from coordlock import types
from tests.docs.pages import REPOSITORY
from tests.unit.test_api import FOR_APPLICATIONS

__all__ = ["PAGE", "text"]

PAGE: Final = REPOSITORY / "docs/reference/api.md"
#: The packages whose names are in one table: its title, and where the guides are.
TABLES: Final = {
    "Clients": (
        "client",
        "[Configure](../how-to/configure.md), [clients in a program](../how-to/clients.md), "
        "[operate](../how-to/operate.md).",
    ),
    "Locks and grants": (
        "locks",
        "[Which recipe](../index.md), [concepts](../concepts.md).",
    ),
    "Recipes": (
        "recipes",
        "[Elections and groups](../how-to/elect-a-leader.md), "
        "[values, counters, latches, gates and barriers](../how-to/share-state.md).",
    ),
    "Work queues": ("work", "[Share work](../how-to/share-work.md)."),
    "Jobs": (
        "jobs",
        "[Run jobs once](../how-to/run-jobs.md).",
    ),
}
REST: Final = "What they take and give"
#: What has no docstring of its own.
CONSTANTS: Final = {
    "Claim": "What a lock asks for: the type of a `Mode` or a `Permit`.",
    "DEFAULT": "As a timeout: the client's option `timeout`.",
    "FENCE_TABLE": "The table that is used when none is given.",
    "HEADER": "The name of the header: `Fencing-Token`.",
    "MAX_TOKEN": "The greatest token: 2⁶³ - 1.",
    "Presented": "What fences take for a token: a grant, a `FencingToken`, or a number.",
    "TOKEN_KEY": "Where an application finds the token of its request.",
}
HEAD: Final = """# API

Names are those of `coordlock`; `types.` stands for `coordlock.types`. Two names in one row do the
same, for threads and for asyncio. Names that are not here are not part of the API, except for what
the guides say about `coordlock.backend`, `coordlock.testing` and `coordlock_memory`.

`help(coordlock.Lock.acquire)` has parameters, units, ranges and errors in full, and so has the site
that `make docs` builds.
"""


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _title(value: object) -> str:
    package = str(getattr(value, "__module__", "")).split(".")[1:2]
    return next((title for title, (one, _) in TABLES.items() if [one] == package), REST)


def _about(name: str, value: object) -> str:
    if name in CONSTANTS:
        return CONSTANTS[name]
    first = (inspect.getdoc(value) or "").partition("\n")[0]
    return re.sub(r"``([^`]*)``", r"`\1`", first).replace("|", r"\|")


def _members(value: Any, public: set[object]) -> list[str]:
    """What a class has that no base has which is public, or is not ours."""
    if not isinstance(value, type):
        return []
    if issubclass(value, enum.Enum):
        return [member.name for member in value]
    inherited = {
        name
        for base in value.__mro__[1:]
        if base in public or not base.__module__.startswith("coordlock")
        for name in dir(base)
    }
    fields = getattr(value, "__annotations__", {}) if hasattr(value, "__dataclass_fields__") else {}
    return [
        name
        for name in dict.fromkeys([*fields, *dir(value)])
        if name[0] != "_" and name not in inherited
    ]


def _row(name: str, value: object, every: dict[str, Any]) -> list[str]:
    is_of_types = name in types.__all__ and every.get(name) is getattr(types, name)
    where = "types." if is_of_types else ""
    twins = [one for one in (name, f"Async{name}") if one in every]
    names = ", ".join(f"`{where}{one}`" for one in twins)
    about = re.sub(r",? Made by `Client`[^.]*\.", "", _about(name, value))
    public = {one for one in every.values() if callable(one)}
    return [names, about, ", ".join(f"`{one}`" for one in _members(value, public))]


def _table(named: dict[str, Any], every: dict[str, Any]) -> str:
    rows = [
        _row(name, value, every)
        for name, value in sorted(named.items(), key=lambda one: one[0].casefold())
        if not (name.startswith("Async") and name[5:] in every)
    ]
    columns = 3 if any(members for *_, members in rows) else 2
    head = ["name", "what it is", "methods and fields"], ["---"] * 3
    return "".join(f"| {' | '.join(row[:columns])} |\n" for row in (*head, *rows))


def text() -> str:
    """The page."""
    parts = [HEAD]
    every = {name: getattr(coordlock, name) for name in coordlock.__all__}
    every |= {name: getattr(types, name) for name in types.__all__}
    named = {name: value for name, value in every.items() if not _is_error(value)}
    for title in (*TABLES, REST):
        guides = f"{TABLES[title][1]}\n\n" if title in TABLES else ""
        here = {name: value for name, value in named.items() if _title(value) == title}
        parts.append(f"## {title}\n\n{guides}{_table(here, every)}")
    for module in FOR_APPLICATIONS[3:]:
        found = importlib.import_module(module)
        there = {name: getattr(found, name) for name in found.__all__}
        guides = (
            "[Fencing](../fencing.md) says which to use.\n\n"
            if module == "coordlock.fencing"
            else ""
        )
        parts.append(f"## {module}\n\n{guides}{_table(there, there)}")
    parts.append("## Errors\n\n[Errors](errors.md) has the tree of them, with their fields.\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
    print(PAGE)
