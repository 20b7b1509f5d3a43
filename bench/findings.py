"""What a section has found: its tables, in files too."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.machine import describe, load
from bench.plots import draw
from bench.table import Table

__all__ = ["Findings", "page"]

#: What a section's module has as ``measure``: given the rounds, it yields each table when it begins
#: to fill it, and asks for the next, or ends, when it is full. So whoever interrupts it has the
#: rows that there were.
Measure = Callable[[int], Generator[Table, None, None]]


class Findings:
    """The tables of ``section``, as far as they were measured."""

    def __init__(self, section: str, rounds: int) -> None:
        self.tables: list[Table] = []
        #: Why there are not all, if so.
        self.cut_short: str | None = None
        self._section = section
        self._rounds = rounds
        self._started = time.monotonic()
        self._load = load()

    def measure(self, show: Callable[[Table], None]) -> None:
        """Measure, and ``show`` each table when it is full, or as far as it is when cut short.

        Raises what the section raises; its servers and workers have ended then.
        """
        begun: Table | None = None
        try:
            measure: Measure = import_module(f"bench.{self._section}").measure
            with closing(measure(self._rounds)) as tables:
                for table in tables:
                    self._add(begun, show)
                    begun = table
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            self.cut_short = "interrupted" if interrupted else f"{type(error).__name__}: {error}"
            if begun is not None:
                begun.notes.append(f"cut short: {self.cut_short}")
            raise
        finally:
            self._add(begun, show)

    def _add(self, table: Table | None, show: Callable[[Table], None]) -> None:
        if table is not None and table.rows:
            self.tables.append(table)
            show(table)

    @cached_property
    def document(self) -> dict[str, Any]:
        """All of it, for JSON, when it is over."""
        return {
            "section": self._section,
            "rounds": self._rounds,
            "machine": describe(),
            "load before": self._load,
            "load after": load(),
            "seconds": round(time.monotonic() - self._started),
            "cut short": self.cut_short,
            "tables": [asdict(table) for table in self.tables],
        }

    def markdown(self) -> str:
        """The tables as a page of the documentation has them."""
        return f"## {self._section}\n\n" + "\n".join(table.markdown() for table in self.tables)

    def keep(self, directory: Path) -> None:
        """Write text, JSON and a picture to ``directory``, if anything was found."""
        if not self.tables:
            return
        stem = directory / self._section
        stem.with_suffix(".json").write_text(json.dumps(self.document, indent=1) + "\n")
        stem.with_suffix(".txt").write_text("\n".join(table.text() for table in self.tables))
        draw(self.tables, stem)


def page(findings: Sequence[Findings]) -> str:
    """All tables of a run, as a page of the documentation."""
    machine = describe()
    software = {
        **machine["packages"],
        **{name: machine[name] for name in ("etcd", "java", "redis")},
    }
    lines = [
        "# Tables of one benchmark",
        "",
        f"Made by `make bench` on {time.strftime('%d %B %Y')}, and not edited. "
        "`docs/performance.md` says what the words mean.",
        "",
        f"{machine['cores']} cores of {machine['processor']}, {machine['system']}, "
        f"Python {machine['python']}. "
        + "; ".join(f"{name}: {version}" for name, version in software.items())
        + ".",
        "",
    ]
    return "\n".join([*lines, *(one.markdown() for one in findings if one.tables)])
