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
