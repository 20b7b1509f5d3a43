from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from coordlock.backend.config import _PLACE as PLACE
from coordlock.backend.registry import backend_for_scheme
from coordlock.settings import COMMON_OPTIONS
from coordlock.settings.keywords import Options

SNIPPET = """
from datetime import timedelta
import coordlock
coordlock.connect("etcd://h", ttl="15s", timeout=timedelta(seconds=3), tls=True)
coordlock.connect({"backend": "third-party", "of_its_own": 1})
coordlock.connect("etcd://h", tll="15s")
coordlock.connect_async("zookeeper://h", acl="everybody")
"""


def test_the_typed_options_are_those_of_the_backends() -> None:
    known = {option.name for option in COMMON_OPTIONS} | set(PLACE)
    for scheme in ("etcd", "local", "memory", "redis", "redis+unix", "zookeeper"):
        known |= {option.name for option in backend_for_scheme(scheme).options}
    assert set(Options.__annotations__) == known


def test_mypy_refuses_options_that_there_are_not(tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(SNIPPET)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent", str(file)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 2, done.stdout + done.stderr
    assert 'Unexpected keyword argument "tll"' in errors[0]
    assert "incompatible type \"Literal['everybody']\"" in errors[1] or '"acl"' in errors[1]
