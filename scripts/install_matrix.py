"""Builds the sdist and the wheel and tries every extra in an environment of its own.

Real servers are started once, and `tests/install/smoke.py` uses them from each environment. The
log of an installation that failed stays in build/install-matrix.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.servers.etcd import EtcdServer
from testbed.servers.redis import RedisServer
from testbed.servers.zookeeper import ZooKeeperServer

ROOT: Final = Path(__file__).resolve().parent.parent
LOGS: Final = ROOT / "build" / "install-matrix"
SMOKE: Final = ROOT / "tests" / "install" / "smoke.py"
PARALLEL: Final = 2

EXTRAS: Final = {
    "sasl": ("zookeeper", "sasl"),
    "etcd3": ("etcd", "etcd3"),
    "all": (
        "zookeeper",
        "sasl",
        "etcd",
        "cli",
        "cron",
        "sql",
        "redis",
        "postgresql",
        "prometheus",
        "otel",
    ),
}


@dataclass(frozen=True)
class Case:
    """One way to install coordlock: an extra, with some versions pinned.

    ``oldest`` pins every dependency to the lowest version that pyproject.toml admits, on the lowest
    Python only: on later ones, some of those were never published in binary form.
    """

    extra: str
    pins: tuple[str, ...] = ()
    oldest: bool = False

    def __str__(self) -> str:
        name = f"coordlock[{self.extra}]" if self.extra else "coordlock"
        return " ".join([name, *(("oldest",) if self.oldest else self.pins)])

    @property
    def extras(self) -> tuple[str, ...]:
        return EXTRAS.get(self.extra, (self.extra,) if self.extra else ())

    def requirements(self, project: Project) -> tuple[str, ...]:
        return project.floors(self.extras) if self.oldest else self.pins


CASES: Final = (
    Case(""),
    Case("", oldest=True),
    Case("zookeeper"),
    Case("zookeeper", oldest=True),
    Case("sasl"),
    Case("etcd"),
    Case("etcd", ("protobuf==6.*",)),
    Case("etcd", ("protobuf==5.*",)),
    Case("etcd", ("protobuf==4.25.*",)),
    Case("etcd", ("protobuf==3.20.*",)),
    Case("etcd", oldest=True),
    Case("etcd3"),
    Case("cli"),
    Case("cli", oldest=True),
    Case("cron"),
    Case("cron", oldest=True),
    Case("sql"),
    Case("sql", oldest=True),
    Case("redis"),
    Case("redis", oldest=True),
    Case("postgresql"),
    Case("postgresql", oldest=True),
    Case("prometheus"),
    Case("prometheus", oldest=True),
    Case("otel"),
    Case("otel", oldest=True),
    Case("all"),
    Case("testing"),
)


@dataclass(frozen=True)
class Project:
    """What pyproject.toml says of Python versions and dependencies."""

    lowest_minor: int
    dependencies: dict[str, list[str]]

    @classmethod
    def read(cls) -> Project:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        lowest = re.fullmatch(r">=3\.(\d+)", project["requires-python"])
        assert lowest is not None, project["requires-python"]
        return cls(int(lowest[1]), project["optional-dependencies"] | {"": project["dependencies"]})

    def floors(self, extras: Sequence[str]) -> tuple[str, ...]:
        """Each ``name>=version`` of the core and of ``extras`` as ``name==version``."""
        needed = [one for extra in ("", *extras) for one in self.dependencies[extra]]
        found = [re.match(r"([\w-]+)>=([\d.]+)", one) for one in needed]
        return tuple(f"{floor[1]}=={floor[2]}" for floor in found if floor is not None)


@dataclass(frozen=True)
class Python:
    """An interpreter, and its minor version."""

    path: str
    minor: int

    def __str__(self) -> str:
        return f"3.{self.minor}"


def find_pythons(named: Sequence[str], lowest_minor: int) -> list[Python]:
    """This interpreter and one of every later version on the PATH; or those that are named."""
    paths = named or [sys.executable, *(f"python3.{minor}" for minor in range(lowest_minor, 20))]
    found: dict[int, Python] = {}
    for path in paths:
        code = "import sys; print(sys.version_info[1])"
        try:
            answer = subprocess.run([path, "-c", code], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            if named:
                raise
            continue  # there is no such version, or only a stub of that name
        found.setdefault(int(answer.stdout), Python(path, int(answer.stdout)))
    return [found[minor] for minor in sorted(found) if minor >= lowest_minor]


def build(directory: Path) -> Path:
    """The wheel made from the sdist, which must equal the one made from the tree."""
    run_build = [sys.executable, "-m", "build", "--outdir"]
    subprocess.run([*run_build, directory / "sdist", ROOT], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(
        [*run_build, directory / "tree", "--wheel", ROOT], check=True, stdout=subprocess.DEVNULL
    )
    (wheel,) = (directory / "sdist").glob("*.whl")
    different = contents(wheel) ^ contents(directory / "tree" / wheel.name)
    if different:
        names = ", ".join(sorted({name for name, _ in different}))
        raise SystemExit(f"the wheels made from the sdist and from the tree differ in: {names}")
    return wheel


def contents(wheel: Path) -> set[tuple[str, int]]:
    with zipfile.ZipFile(wheel) as archive:
        return {(entry.filename, entry.CRC) for entry in archive.infolist()}


@dataclass(frozen=True)
class Matrix:
    """What every installation needs: the wheel, a place, and the running servers' URLs."""

    project: Project
    wheel: Path
    directory: Path
    urls: tuple[str, ...]

    def try_out(self, python: Python, case: Case) -> bool:
        """Install and check one case, and print its row."""
        name = re.sub(r"[^\w.]+", "-", f"{python} {case}")
        log = LOGS / f"{name}.log"
        started = time.monotonic()
        with log.open("w") as output:
            good = self._install_and_check(python, case, self.directory / name, output.fileno())
        seconds = time.monotonic() - started
        print(
            f"{python!s:6} {case!s:40} {'ok' if good else 'FAILED':7} {seconds:4.0f} s", flush=True
        )
        if good:
            log.unlink()
        return good

    def _install_and_check(self, python: Python, case: Case, place: Path, output: int) -> bool:
        own = place / "venv" / "bin" / "python"
        state = place / "state"
        state.mkdir(parents=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(own)]
        target = f"{self.wheel}[{case.extra}]" if case.extra else str(self.wheel)
        commands = (
            [python.path, "-m", "venv", "--without-pip", str(place / "venv")],
            [*pip, "install", target, *case.requirements(self.project)],
            [*pip, "check"],
            [*pip, "freeze"],
            [str(own), "-I", str(SMOKE), "--extras", *case.extras, "--urls", *self.urls],
        )
        try:
            for command in commands:
                subprocess.run(
                    command,
                    cwd=state,  # without a configuration file
                    env=os.environ | {"XDG_STATE_HOME": str(state)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=600,
                    check=True,
                )
        except (subprocess.SubprocessError, OSError) as error:
            os.write(output, f"{error}\n".encode())
            return False
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python", action="append", default=[], help="an interpreter to install into"
    )
    parser.add_argument("cases", nargs="*", help="words of the rows to try; all of them by default")
    given = parser.parse_args()
    project = Project.read()
    rows = [
        (python, case)
        for python in find_pythons(given.python, project.lowest_minor)
        for case in CASES
        if python.minor == project.lowest_minor or not case.oldest
        if not given.cases or any(word in str(case) for word in given.cases)
    ]
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="coordlock-install-") as name:
        directory = Path(name)
        wheel = build(directory)
        print(f"{wheel.name}: the same from the sdist and from the tree", flush=True)
        with (
            EtcdServer(directory / "etcd") as etcd,
            RedisServer(directory / "redis") as redis,
            ZooKeeperServer(directory / "zookeeper") as zookeeper,
            ThreadPoolExecutor(PARALLEL) as pool,
        ):
            urls = (etcd.url, redis.url, zookeeper.url)
            matrix = Matrix(project, wheel, directory, urls)
            results = list(pool.map(lambda row: matrix.try_out(*row), rows))
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    for log in sorted(LOGS.iterdir()):
        print(f"\n{log.relative_to(ROOT)}:\n{log.read_text()[-3000:]}")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
