"""What coordlock costs, beside its peers and beside what cannot be avoided.

Servers are started on this machine for the run, and everything that is compared is measured in
turns. Text goes to standard output, and with JSON to build/bench. Ctrl-C keeps the tables that are
full.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Final

from bench.machine import describe, load
from bench.table import Table

#: What each section measures, and about how many seconds it takes with `ROUNDS` rounds. The module
#: of that name has ``measure``, a generator of tables, given the rounds.
SECTIONS: Final = {
    "uncontended": ("acquire and release where nobody else is; messages and round trips", 30),
    "handoff": ("from one process' release to another one's grant", 45),
    "contended": ("one lock that up to sixteen processes want; fairness", 250),
    "queues": ("up to 10,000 waiters of one lock: speed, messages, memory", 120),
    "work": ("work queues of 100 to 10,000 items, and kazoo's; up to 20 consumers", 80),
}
OUTPUT: Final = Path("build/bench")
ROUNDS: Final = 8
#: Of each contestant; quartiles need two.
_FEWEST_ROUNDS: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 when a section failed, 130 when interrupted."""
    given = _parse(arguments)
    failed: list[str] = []
    for section in given.sections or SECTIONS:
        before, tables = load(), []
        try:
            with closing(import_module(f"bench.{section}").measure(given.rounds)) as measuring:
                for table in measuring:
                    print(table.text(), flush=True)
                    tables.append(table)
        except KeyboardInterrupt:
            print(f"interrupted; full tables are in {given.output}", file=sys.stderr)
            return 130
        except Exception:
            traceback.print_exc()
            failed.append(section)
        finally:
            _keep(given.output / section, tables, {"rounds": given.rounds, "load before": before})
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _keep(stem: Path, tables: list[Table], about: dict[str, object]) -> None:
    """Write text and JSON, if anything was found."""
    if tables:
        found = [asdict(table) for table in tables]
        document = {"machine": describe(), **about, "load after": load(), "tables": found}
        stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
        stem.with_suffix(".txt").write_text("\n".join(table.text() for table in tables))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    listed = [f"  {name:<12} {what} ({time} s)" for name, (what, time) in SECTIONS.items()]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog="\n".join(["sections:", *listed]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("sections", nargs="*", metavar="SECTION", help="all by default; see below")
    add("--rounds", type=int, default=ROUNDS, metavar="N", help=f"in turns ({ROUNDS})")
    add("--output", type=Path, default=OUTPUT, metavar="DIRECTORY", help=f"for files ({OUTPUT})")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.sections if name not in SECTIONS]:
        parser.error(f"no section: {', '.join(unknown)}")
    if given.rounds < _FEWEST_ROUNDS:
        parser.error(f"--rounds: {_FEWEST_ROUNDS} or more")
    given.output.mkdir(parents=True, exist_ok=True)
    return given


if __name__ == "__main__":
    sys.exit(main())
