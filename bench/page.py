"""The documentation's figures, from a run: ``python -m bench.page [DIRECTORY]``.

Copies the run's tables and pictures into docs/, and fills the tables of docs/performance.md from
them, each below a comment that names it: ``<!-- figures: handoff -->``. Words are edited by hand.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Final

__all__ = ["SUMMARY", "fill"]

_PICTURES: Final = ("contended", "queues", "uncontended")
_SERVICES: Final = {"ZooKeeper": "zookeeper", "etcd": "etcd", "Redis": "redis", "local": "local"}

#: In the run: the title of a table, one of its columns, and what its rows must have in others.
Source = tuple[str, str, dict[str, str]]


def _each(title: str, value: str, heading: str = "{}", **where: str) -> dict[str, Source]:
    """A column for each service, whose name is in the ``title``."""
    return {
        heading.format(name): (title.format(called), value, where)
        for name, called in _SERVICES.items()
    }


def _some(title: str, *values: str, **where: str) -> dict[str, Source]:
    return {value: (title, value, where) for value in values}


#: The tables of the summary: from where each of their columns is.
SUMMARY: Final = {
    "pairs": _each("Uncontended acquire and release: {}", "x floor"),
    "peers": _each("Uncontended acquire and release: {}", "x best peer"),
    "far": _each("Through a network of 5 ms each way: {}", "acquire, round trips"),
    "handoff": _each("Handoff from process to process: {}", "x commit and event"),
    "fair": _some(
        "Quick or fair: one lock, 4 processes",
        *("grants/s, x coordlock", "longest wait, ms", "fewest / most"),
    ),
    "contended": _each(
        "One lock that several processes want all the time: {}",
        "x coordlock's first row",
        who="coordlock",
    ),
    "waiting": _some(
        *("Waiting in a long queue", "KiB each", "threads", "CPU % idle"), waiters="1000"
    ),
    "holding": _some("Holding, while nothing happens", "requests per TTL", locks="10000"),
    "several": _each(
        "Ten locks, a tree, a conversion: {}, 5 ms each way",
        "acquire, x one lock's",
        "{}, 5 ms each way",
    )
    | _each("Ten locks, a tree, a conversion: {}", "acquire, x one lock's"),
    "leaf": _each(
        "One more leaf where 1,000 others are held: {}", "acquire, x a plain lock's", "{}, acquire"
    )
    | _each(
        "One more leaf where 1,000 others are held: {}", "handoff, x a plain lock's", "{}, handoff"
    ),
    "gatherings": _each("An election and a group: {}", "x one lock's acquire or handoff"),
    "failover": _some(
        "The leader's process is killed",
        *("time-to-live, s", "kill to the next term, ms", "removal to the next term, ms"),
    ),
    "work": _each(
        "An item of a work queue, by how many wait: {}",
        "take and done, ms",
        "{}, take and done, ms",
        queue="coordlock",
    ),
    "waiters": _some(
        "100 processes that wait: local",
        *("CPU % of a core while waiting", "handoff, ms", "in order"),
    ),
    "start": _some("Start", "x python -c pass"),
    "fences": _some(
        "A guarded operation beside the same one without a guard", "guarded / unguarded"
    ),
}

Tables = dict[str, list[dict[str, str]]]


def fill(summary: str, measured: str) -> str:
    """The page ``summary``, with the figures of the page ``measured``."""
    tables = _tables(measured)
    filled = re.sub(
        r"(?<=^<!-- figures: )(\w+)( -->\n\n)(?:(?:\|.*\n)+\n?)?",
        lambda found: found[1] + found[2] + _table(SUMMARY[found[1]], tables),
        summary,
        flags=re.MULTILINE,
    )
    return filled.rstrip() + "\n"


def _tables(page: str) -> Tables:
    """All tables by their titles, with their rows by column."""
    found: Tables = {}
    for title, text in re.findall(r"^\*\*(.+)\*\*\n\n((?:\|.*\n)+)", page, re.MULTILINE):
        columns, _, *rows = (line.strip("| ").split(" | ") for line in text.splitlines())
        found[title] = [dict(zip(columns, row, strict=True)) for row in rows]
    return found


def _table(columns: dict[str, Source], tables: Tables) -> str:
    """One table of the summary, without columns that were not measured, and without floors."""
    rows: dict[str, dict[str, str]] = {}
    for heading, (title, value, where) in columns.items():
        for row in tables.get(title, ()):
            if where.items() <= row.items():
                key = next(cell for column, cell in row.items() if column not in where)
                key = re.sub(r" \(\w+\)", "", key)  # through what it goes to the service
                rows.setdefault(key, {})[heading] = row[value].partition(" (")[0]
    there = [heading for heading in columns if any(heading in row for row in rows.values())]
    lines = [["", *there], ["---"] * (1 + len(there))]
    for key, row in rows.items():
        if not key.startswith("floor") and not set(row.values()) <= {"1", "1.00"}:
            lines.append([key, *(row.get(heading, "") for heading in there)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n" if there else ""


def main(directory: Path, docs: Path) -> None:
    """Bring the run in ``directory`` into ``docs``; exits if it does not have all tables."""
    measured = (directory / "tables.md").read_text("utf-8")
    tables = _tables(measured)
    if missing := [name for name, columns in SUMMARY.items() if not _table(columns, tables)]:
        sys.exit(f"{directory} has nothing for {', '.join(missing)}: measure all with make bench")
    for name in _PICTURES:
        shutil.copy(directory / f"{name}.svg", docs / "pictures" / f"performance-{name}.svg")
    (docs / "performance-tables.md").write_text(measured, "utf-8")
    summary = docs / "performance.md"
    summary.write_text(fill(summary.read_text("utf-8"), measured), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else "build/bench"), Path("docs"))
