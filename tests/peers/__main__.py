"""Run the peers' suites: ``python -m tests.peers``."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

REPOSITORY: Final = Path(__file__).parents[2]
UNDER: Final = REPOSITORY / "build" / "peers"


@dataclass(frozen=True)
class Peer:
    """A peer's suite.

    Args:
        package: the distribution, whose source archive has the suite.
        version: the one whose suite is known.
        suite: the file in the archive.
        adapter: the module that stands in for the suite's conftest.
        needs: what the suite imports besides.
    """

    package: str
    version: str
    suite: str
    adapter: str
    needs: tuple[str, ...] = ()

    def fetch(self) -> Path:
        """The directory with the suite, and with what it needs beside it."""
        directory = UNDER / f"{self.package}-{self.version}"
        if not (suite := directory / "suite" / "test_suite.py").exists():
            pip("install", "--target", str(directory / "site"), self.name, *self.needs)
            with tempfile.TemporaryDirectory() as archives:
                pip("download", "--no-deps", "--no-binary", ":all:", "-d", archives, self.name)
                (archive,) = Path(archives).iterdir()
                suite.parent.mkdir(parents=True, exist_ok=True)
                (suite.parent / "__init__.py").touch()
                (suite.parent / "conftest.py").write_text(f"from {self.adapter} import *\n")
                with tarfile.open(archive) as opened:
                    member = opened.extractfile(f"{self.package}-{self.version}/{self.suite}")
                    assert member is not None
                    suite.write_bytes(member.read())
        return directory

    @property
    def name(self) -> str:
        return f"{self.package}=={self.version}"


PEERS: Final = (
    Peer("redis", "7.1.0", "tests/test_lock.py", "tests.peers.redis_lock"),
    Peer("filelock", "3.20.0", "tests/test_filelock.py", "tests.peers.file_lock", ("pytest-mock",)),
)


def pip(*arguments: str) -> None:
    line = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", *arguments]
    subprocess.run(line, check=True)


def outcomes(peer: Peer) -> Iterator[tuple[str, bool]]:
    """Each test of the suite, and whether it passes. A test that is skipped is left out."""
    directory = peer.fetch()
    (directory / "pytest.ini").write_text("[pytest]\n")
    report = directory / "report.xml"
    with tempfile.TemporaryDirectory(dir=directory) as state:
        environment = {
            **os.environ,
            "COORDLOCK_URL": f"local://{state}/locks",
            "PYTHONPATH": os.pathsep.join([str(directory / "site"), str(REPOSITORY)]),
        }
        arguments = ("-q", "--tb=no", "--timeout=120", f"--junit-xml={report}", "-p", "no:randomly")
        subprocess.run(
            [sys.executable, "-m", "pytest", *arguments, "suite"],
            cwd=directory,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.attrib["name"]
        if case.find("skipped") is None:
            yield name, case.find("failure") is None and case.find("error") is None


def main() -> int:
    """Run all; 0 where just those fail that are not meant to pass."""
    known = tomllib.loads((Path(__file__).parent / "left_out.toml").read_text("utf-8"))
    surprises = 0
    for peer in PEERS:
        reasons: dict[str, str] = known[peer.package]
        passed, failed = 0, dict[str, list[str]]()
        for name, is_passed in outcomes(peer):
            reason = reasons.get(name.partition("[")[0])
            if is_passed != (reason is None):
                surprises += 1
                print(f"{peer.name} {name}: {'passed' if is_passed else 'FAILED'}, unexpectedly")
            elif reason is None:
                passed += 1
            else:
                failed.setdefault(reason, []).append(name)
        left_out = sum(map(len, failed.values()))
        print(f"{peer.name}: {passed} passed, {left_out} not meant to")
        for reason, names in failed.items():
            print(f"  {len(names):3}  {reason}")
    return min(surprises, 1)


if __name__ == "__main__":
    sys.exit(main())
