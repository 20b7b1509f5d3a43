"""The container stacks, as far as they can be tested without a container engine.

`make test-compose` starts them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
STACKS: Final = sorted((ROOT / "compose").glob("*.yaml"))
ZK_SERVER: Final = ROOT / "compose" / "zookeeper" / "zkServer.sh"


def test_there_are_one_and_three_nodes_of_each_service() -> None:
    names = {stack.stem for stack in STACKS}
    assert names == {"etcd", "etcd-cluster", "zookeeper", "zookeeper-cluster"}


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.stem)
def test_every_port_is_published_on_loopback_alone(stack: Path) -> None:
    text = stack.read_text()
    published = re.findall(r'"(.*):(?:2379|2181)"', text)
    assert len(published) == (3 if "cluster" in stack.stem else 1)
    assert text.count("ports:") == len(published)
    assert all(where.startswith("127.0.0.1:${COORDLOCK_") for where in published)


def test_the_readme_names_every_variable_and_its_default() -> None:
    readme = (ROOT / "compose" / "README.md").read_text()
    for stack in STACKS:
        for variable, default in re.findall(r"\$\{(\w+):-([^}]*)\}", stack.read_text()):
            row = re.sub(r"_[123]$", "_1", variable)
            assert f"`{row}`" in readme
            assert default in readme


def test_the_local_image_of_zookeeper_takes_every_variable_that_the_stacks_set() -> None:
    names = {name for stack in STACKS for name in re.findall(r"\b(ZOO_\w+):", stack.read_text())}
    assert "ZOO_TICK_TIME" in names
    assert names <= set(re.findall(r"\$\{(ZOO_\w+):-", ZK_SERVER.read_text()))


# A stand-in for docker and its Compose, because no engine is here. It appends what it is asked to a
# file, and its containers are in the state that STATE names.
DOCKER: Final = """\
#!/bin/sh
echo "$COORDLOCK_ETCD_PORT $*" >>"$CALLS"
case "$*" in
    *" ps "*) echo container ;;
    *" up "*) exit "${UP:-0}" ;;
    inspect*) echo "$STATE" ;;
    *) echo 1 ;;
esac
"""

Arrange = Callable[..., "subprocess.Popen[str]"]


class TestTestCompose:
    """`make test-compose`: what it does when something is missing, fails or is interrupted."""

    @pytest.fixture
    def calls(self, tmp_path: Path) -> Path:
        calls = tmp_path / "calls"
        calls.touch()
        return calls

    @pytest.fixture
    def start(self, tmp_path: Path, calls: Path) -> Arrange:
        """Starts the script for the stack `etcd`, with a path where there is only ``docker``."""

        def start(docker: str | None = DOCKER, **environment: str) -> subprocess.Popen[str]:
            path = tmp_path / "bin"
            path.mkdir()
            if docker:
                (path / "docker").write_text(docker)
                (path / "docker").chmod(0o755)
            return subprocess.Popen(
                [sys.executable, ROOT / "scripts" / "test_compose.py", "etcd"],
                env={**os.environ, "PATH": str(path), "CALLS": str(calls), **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

        return start

    @pytest.mark.parametrize(
        ("environment", "what"),
        [
            ({"UP": "1"}, "etcd: could not be started"),
            ({"STATE": "exited unhealthy"}, "etcd: is not healthy (its containers are: exited"),
            ({"STATE": "running unhealthy"}, "etcd: is not healthy (its containers are: running"),
        ],
    )
    def test_a_stack_that_does_not_start_is_removed(
        self, start: Arrange, calls: Path, environment: dict[str, str], what: str
    ) -> None:
        script = start(**environment)
        _, errors = script.communicate(timeout=60)
        assert script.returncode == 1
        assert what in errors
        assert_removed(calls)


def assert_removed(calls: Path) -> None:
    """The last call removed what an earlier one started: the same project, port and file."""
    asked = calls.read_text().splitlines()
    (started,) = [call for call in asked if " up " in call]
    assert re.match(r"\d+ compose --project-name coordlock-test-etcd-\d+ ", started)
    common = started.partition(" up ")[0]
    # A look that was under way when the script was interrupted may end later.
    asked = [call for call in asked if " inspect " not in call]
    assert asked[-1] == f"{common} down --volumes --timeout 5"
