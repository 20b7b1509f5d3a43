"""The command line of the soak, as far as it needs no servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from coordlock_faults.journal import Journal

from testbed.soak.__main__ import main
from tests.faults.checkers.story import Story


def kept(story: Story, directory: Path) -> list[str]:
    """The words that judge ``story``, whose journals are put into ``directory``."""
    for event in story.history().events:
        with Journal(directory / f"{event.process}.jsonl", event.process) as journal:
            journal.write(event)
    return ["--judge", str(directory)]


def test_a_kept_history_is_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, released=20, gone=7, seen=21)
    assert main(kept(story, tmp_path)) == 0
    told = capsys.readouterr()
    assert "exclusion: holds" in told.out
    assert "holds, " in told.out
    assert "1 grants" in told.out


def test_a_kept_history_that_does_not_hold_fails_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Story()
    story.attempt("c1", 5, invoked=1, granted=10, released=20)
    assert main(kept(story, tmp_path)) == 1
    assert "Leaked: " in capsys.readouterr().out


@pytest.mark.parametrize(("content", "why"), [(None, "no journals are in"), ("x\n", "line 1")])
def test_what_is_no_history_is_refused(
    content: str | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "c1.jsonl").write_text(content)
    with pytest.raises(SystemExit):
        main(["--judge", str(tmp_path)])
    assert why in capsys.readouterr().err
