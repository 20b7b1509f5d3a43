"""When a run that came to no end has no verdict, and when it has failed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coordlock_faults.journal import Journal

from testbed.soak.crew import NoAnswer, ProcessFailed
from testbed.soak.run import blame
from testbed.truth.observer import ServiceBroken
from tests.faults.checkers.story import Story

LOST = {"a": "a contender of 'a' is there for n1 alone"}


def parties(
    directory: Path, contradictions: dict[str, str], story: Story | None = None, died: bool = False
) -> Any:
    """Stand-ins for those who take part, of which ``story`` is written down so far."""
    for event in (story or Story()).events:
        with Journal(directory / f"{event.process}.jsonl", event.process) as journal:
            journal.write(event)

    def check() -> None:
        if died:
            raise ProcessFailed("c2 ended by itself, with status 1")

    return SimpleNamespace(
        directory=directory,
        crew=SimpleNamespace(check=check),
        truth=SimpleNamespace(contradictions=lambda: contradictions),
    )


def test_who_waits_for_what_the_service_contradicts_itself_about_proves_nothing(
    tmp_path: Path,
) -> None:
    with pytest.raises(ServiceBroken, match="n1 alone") as raised:
        blame(parties(tmp_path, LOST), {"a"}, NoAnswer("c1 did not say 'drained'"))
    assert isinstance(raised.value.__cause__, NoAnswer)


@pytest.mark.parametrize("locks", [{"b"}, {"a", "b"}, set()])
def test_who_waits_for_something_else_is_not_excused_by_it(locks: set[str], tmp_path: Path) -> None:
    blame(parties(tmp_path, LOST), locks, NoAnswer("c1 did not say 'drained'"))


def test_who_waits_is_not_excused_where_a_client_has_died(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match="c2 ended by itself"):
        blame(parties(tmp_path, LOST, died=True), {"a"}, NoAnswer("c1 did not say 'drained'"))


def test_who_waits_is_not_excused_where_two_have_held_the_lock(tmp_path: Path) -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=22)
    story.attempt("c2", 6, invoked=2, granted=21, released=30)
    blame(parties(tmp_path, LOST, story), {"a"}, NoAnswer("c1 did not say 'drained'"))
