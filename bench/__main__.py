"""What coordlock costs, beside its peers and beside what cannot be avoided.

Servers are started on this machine for the run, and everything that is compared is measured in
turns. Text goes to standard output; text, JSON and pictures to build/bench. Ctrl-C keeps what was
measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.findings import Findings, page
from bench.progress import Progress
from bench.table import Table

#: What each measures, and about how many seconds it takes with so many `ROUNDS`.
SECTIONS: Final = {
    "uncontended": ("acquire and release where nobody else is; messages and round trips", 30),
    "handoff": ("from one process' release to another one's grant", 45),
    "contended": ("one lock that up to sixteen processes want; who waits how long", 330),
    "independent": ("64 locks at a time from one process", 35),
    "queues": ("up to 10,000 waiters of one lock: speed, messages, memory", 120),
    "holding": ("an idle client that holds up to 10,000 locks", 60),
    "several": ("ten locks at once, trees, conversions; 1,000 leaves under one root", 25),
    "gatherings": ("elections, groups, 1,000 members and 1,000 observers", 40),
    "failover": ("elections whose leader is killed, beside kazoo's and etcdctl's", 65),
    "work": ("work queues of 100 to 10,000 items, and kazoo's; up to 20 consumers", 80),
    "local": ("100 processes that wait for a file, beside filelock; 20 threads", 35),
    "start": ("imports and commands", 10),
    "fences": ("guarded operations beside the same without a guard", 12),
}
OUTPUT: Final = Path("build/bench")
ROUNDS: Final = 8
#: Of each contestant; quartiles need two.
_FEWEST_ROUNDS: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 when a section failed, 130 when interrupted."""
    given = _parse(arguments)
    names = given.sections or list(SECTIONS)
    found: list[Findings] = []
    failed: list[str] = []
    name, status = "", 0
    with Progress(quiet=given.quiet) as progress:

        def show(table: Table) -> None:
            if not given.json:
                with progress.aside():
                    print(table.text(), flush=True)

        try:
            for number, name in enumerate(names, 1):
                left = sum(SECTIONS[one][1] for one in names[number - 1 :])
                progress.section(name, number, len(names), left * given.rounds / ROUNDS)
                findings = Findings(name, given.rounds)
                try:
                    try:
                        findings.measure(show)
                    finally:
                        found.append(findings)
                        findings.keep(given.output)
                except Exception as error:
                    progress.say("".join(traceback.format_exception(error)).rstrip())
                    failed.append(name)
        except KeyboardInterrupt:
            status = 130
            during = f"interrupted in {name} after {progress.elapsed}"
            progress.say(f"{during}; what was measured is in {given.output}")
    (given.output / "tables.md").write_text(page(found))
    if failed:
        status = status or 1
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    if given.json:
        print(json.dumps({"sections": [one.document for one in found]}, indent=1))
    return status


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    width = max(map(len, SECTIONS))
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog="\n".join(
            [f"sections, and about how many seconds each takes with {ROUNDS} rounds:"]
            + [f"  {name:<{width}}  {what} ({time})" for name, (what, time) in SECTIONS.items()]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="all by default; see below")
    parser.add_argument(
        "--rounds",
        type=int,
        default=ROUNDS,
        metavar="N",
        help=f"of each contestant, in turns ({ROUNDS})",
    )
    parser.add_argument(
        "--output", type=Path, default=OUTPUT, metavar="DIRECTORY", help=f"for files ({OUTPUT})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document, not text")
    parser.add_argument("--quiet", action="store_true", help="don't show progress on stderr")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.sections if name not in SECTIONS]:
        parser.error(f"no section: {', '.join(unknown)}")
    if given.rounds < _FEWEST_ROUNDS:
        parser.error(f"--rounds: {_FEWEST_ROUNDS} or more")
    given.output.mkdir(parents=True, exist_ok=True)
    return given


if __name__ == "__main__":
    sys.exit(main())
