"""The container stacks, as far as they can be tested without a container engine.

`make test-compose` starts them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
STACKS: Final = sorted((ROOT / "compose").glob("*.yaml"))


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.stem)
def test_every_port_is_published_on_loopback_alone(stack: Path) -> None:
    text = stack.read_text()
    published = re.findall(r'"(.*):(?:2379|2181)"', text)
    assert len(published) == (3 if "cluster" in stack.stem else 1)
    assert text.count("ports:") == len(published)
    assert all(where.startswith("127.0.0.1:${COORDLOCK_") for where in published)
