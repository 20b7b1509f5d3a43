"""The protocols hold in their models, and each of their rules is needed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.spin

MODELS: Final = Path(__file__).parents[2] / "models"
STUCK: Final = "invalid end state"
TWO_HOLD: Final = r"assertion violated .*granted"
ORDER: Final = r"assertion violated .*last"


def check(directory: Path, model: str, switches: str) -> str:
    """What Spin says of a model: its first failure, or an empty text."""

    def run(*command: str) -> str:
        return subprocess.run(
            command, cwd=directory, check=True, capture_output=True, text=True, timeout=280
        ).stdout

    defines = [f"-D{switch}" for switch in switches.split()]
    run("spin", *defines, "-a", str(MODELS / f"{model}.pml"))
    run("cc", "-O2", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=512", "-o", "pan", "pan.c")
    # An end of time, and of the faults, is no fault of the model.
    told = run("./pan", "-m20000", *(["-E"] if model == "failover" else []))
    assert "max search depth too small" not in told
    assert re.search(r"errors: [01]\b", told), told
    found = re.search(r"^pan:1: (.*)", told, re.MULTILINE)
    return found[1] if found else ""


@pytest.mark.parametrize(
    ("model", "switches"),
    [
        ("wakeup", ""),
        ("wakeup", "DEATH"),
        ("wakeup", "LOST_REPLIES"),
        ("wakeup", "LOST_NEWS SAFETY_LOOK DEATH"),
        ("wakeup", "LOST_NEWS SAFETY_LOOK LOST_REPLIES CLIENTS=2 ROUNDS=2"),
        ("failover", ""),
        ("failover", "TTL=2"),
        ("failover", "RESTORE FAILOVERS=2"),
        ("failover", "GUARD END=2"),
    ],
)
def test_a_protocol_holds_within_the_bounds_of_its_model(
    tmp_path: Path, model: str, switches: str
) -> None:
    assert not check(tmp_path, model, switches)


@pytest.mark.long  # it shows that the model can fail
@pytest.mark.parametrize(
    ("model", "switches", "failure"),
    [
        ("wakeup", "NO_QUEUE_LOCK", TWO_HOLD),
        ("wakeup", "OLD_SNAPSHOT", TWO_HOLD),
        ("wakeup", "NO_SECOND_LOOK", STUCK),
        ("wakeup", "EARLY_LOOKUP", STUCK),
        ("wakeup", "ONE_SUCCESSOR", STUCK),
        ("wakeup", "DEATH SILENT_REAPER", STUCK),
        ("wakeup", "LOST_REPLIES NO_IDEMPOTENCE", STUCK),
        ("wakeup", "LOST_NEWS", STUCK),
        ("failover", "NO_EPOCH", TWO_HOLD),
        ("failover", "COUNTED_EPOCH RESTORE FAILOVERS=2", ORDER),
        ("failover", "SHORT_PAUSE TTL=2", TWO_HOLD),
        ("failover", "OLD_WAITERS", TWO_HOLD),
        ("failover", "OLD_GRANTS TTL=2", TWO_HOLD),
        ("failover", "GUARD OLD_GUARDS END=2", TWO_HOLD),
        ("failover", "GUARD FREE_GUARD END=2", TWO_HOLD),
    ],
)
def test_a_protocol_without_one_of_its_rules_fails(
    tmp_path: Path, model: str, switches: str, failure: str
) -> None:
    assert re.match(failure, check(tmp_path, model, switches))
