"""What coordlock costs, beside its peers and beside what cannot be avoided.

Servers are started on this machine for the run, and everything that is compared is measured in
turns. Text goes to standard output; text, JSON and pictures to build/bench.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Final

from bench.machine import describe
from bench.plots import draw
from bench.table import Table

SECTIONS: Final = (
    "uncontended",
    "handoff",
    "independent",
    "queues",
    "holding",
    "local",
    "start",
    "fences",
)
OUTPUT: Final = Path("build/bench")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="all by default")
    parser.add_argument("--rounds", type=int, default=30, help="of each contestant, in turns")
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"default: {OUTPUT}")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    for name in given.sections or SECTIONS:
        measure: Callable[[int], Iterator[Table]] = import_module(f"bench.{name}").measure
        before, started, tables = describe(), time.monotonic(), []
        for table in measure(given.rounds):
            print(table.text(), flush=True)
            tables.append(table)
        stem = given.output / name
        found = {
            "section": name,
            "machine": before,
            "load after": describe()["load"],
            "seconds": round(time.monotonic() - started),
            "tables": [asdict(table) for table in tables],
        }
        stem.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
        stem.with_suffix(".txt").write_text("\n".join(table.text() for table in tables))
        stem.with_suffix(".md").write_text("\n\n".join(table.markdown() for table in tables))
        draw(tables, stem)
    return 0


if __name__ == "__main__":
    sys.exit(main())
