"""What the package shows of itself."""

from __future__ import annotations

import tempfile
import textwrap
from pathlib import Path

import coordlock_faults as faults
import pytest


def test_the_example_of_the_docstring_runs_as_it_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert faults.__doc__ is not None
    _, _, rest = faults.__doc__.partition("::\n\n")
    example, _, _ = rest.partition("\nWhat is to be logged")
    exec(compile(textwrap.dedent(example), "example", "exec"), {})
    assert capsys.readouterr().out
