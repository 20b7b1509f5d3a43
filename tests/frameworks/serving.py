"""Web servers that choose their own port, and say which."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from coordlock.testing.waiting import eventually

_WHERE = re.compile(r"http://127\.0\.0\.1:[1-9]\d*")


def url_of(server: subprocess.Popen[bytes], output: Path) -> str:
    """Where ``server`` listens: uvicorn and gunicorn write the port that they got to ``output``.

    A port that is chosen for them may be another server's by the time they listen.
    """

    def listens() -> bool:
        assert server.poll() is None, output.read_text()
        return _WHERE.search(output.read_text()) is not None

    eventually(listens, within=120)
    found = _WHERE.search(output.read_text())
    assert found is not None
    return found[0]
