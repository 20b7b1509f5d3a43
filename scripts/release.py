"""Builds the sdists and the wheels into dist/, and checks all that RELEASING.md asks for.

Publishes nothing. The tools that it needs are installed into build/release.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = ROOT / "dist"
TOOLS: Final = ROOT / "build" / "release"
URLS: Final = ("Source", "Documentation", "Changelog", "Issues")
#: Bytes. The sdist has the code and the pages, and no tests.
LARGEST_SDIST: Final = 1_500_000
FINAL: Final = re.compile(r"\d+\.\d+\.\d+")


def missing_in_project(project: Mapping[str, Any]) -> Iterator[str]:
    """What pyproject.toml must say before a release, and doesn't."""
    if not project.get("maintainers"):
        yield "pyproject.toml has no `maintainers`"
    for name in URLS:
        if not str(project.get("urls", {}).get(name, "")).startswith("https://"):
            yield f"[project.urls] in pyproject.toml has no {name}"
    stable = "Development Status :: 5 - Production/Stable" in project["classifiers"]
    if stable != bool(FINAL.fullmatch(project["version"])):
        yield f"the classifier of the development status does not fit {project['version']}"


def other_versions(version: str) -> Iterator[str]:
    """The distributions in packages/ whose version is not coordlock's."""
    for file in sorted((ROOT / "packages").glob("*/pyproject.toml")):
        if (found := tomllib.loads(file.read_text())["project"])["version"] != version:
            yield f"packages/{file.parent.name} has version {found['version']}"


def missing_in_changelog(changelog: str, version: str) -> Iterator[str]:
    """What CHANGELOG.md must say before ``version`` is released, and doesn't."""
    heading = re.search(rf"^## \[{re.escape(version)}\] - (.*)$", changelog, re.MULTILINE)
    if heading is None:
        yield f"CHANGELOG.md has no section [{version}]"
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[1]):
        yield f"CHANGELOG.md gives [{version}] no date such as 2027-01-31, but {heading[1]!r}"


def missing_in_record(version: str, unit: Path = ROOT / "tests" / "unit") -> Iterator[str]:
    """What keeps the next release from being compared with the public API of this one."""
    released = unit / f"api-{version.partition('.')[0]}.txt"
    if FINAL.fullmatch(version) and not (
        released.exists() and released.read_bytes() == (unit / "api.txt").read_bytes()
    ):
        yield f"tests/unit/{released.name} is not a copy of tests/unit/api.txt"


def missing_in_repository(version: str) -> Iterator[str]:
    """What keeps the commit from being the release's."""
    if git("status", "--porcelain"):
        yield "the work tree has changes that are not committed"
    if git("tag", "--list", f"v{version}"):
        yield f"there is a tag v{version} already"


def wrong_in_wheel(names: set[str], version: str) -> Iterator[str]:
    """What the wheel with the files ``names`` lacks, or has beside its packages."""
    info = f"coordlock-{version}.dist-info"
    for needed in (f"{info}/licenses/LICENSE", "coordlock/py.typed"):
        if needed not in names:
            yield f"the wheel lacks {needed}"
    ours = {"coordlock", *(package.name for package in (ROOT / "backends").iterdir())}
    if strange := {name.split("/")[0] for name in names} - {info} - ours:
        yield f"the wheel has {', '.join(sorted(strange))} at its top"


def wrong_in_sdist(names: set[str], size: int) -> Iterator[str]:
    """What the sdist with the files ``names`` lacks, or has too much of."""
    for needed in ("LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "pyproject.toml"):
        if needed not in names:
            yield f"the sdist lacks {needed}"
    if any(name.startswith("tests/") for name in names):
        yield "the sdist has tests"
    if size > LARGEST_SDIST:
        yield f"the sdist has {size} bytes, more than {LARGEST_SDIST}"


def git(*words: str) -> str:
    asked = ["git", "-C", str(ROOT), *words]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def build() -> tuple[Path, Path]:
    """The sdist and, made from it, the wheel of coordlock; those of packages/ beside them."""
    for old in (*DIST.glob("*.tar.gz"), *DIST.glob("*.whl")):
        old.unlink()
    for project in (ROOT, *sorted((ROOT / "packages").iterdir())):
        subprocess.run(
            [sys.executable, "-m", "build", "--outdir", str(DIST), str(project)], check=True
        )
    [sdist], [wheel] = DIST.glob("coordlock-*.tar.gz"), DIST.glob("coordlock-*.whl")
    return sdist, wheel


def look_into(sdist: Path, wheel: Path, version: str) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as archive:
        yield from wrong_in_wheel(set(archive.namelist()), version)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    yield from wrong_in_sdist(names, sdist.stat().st_size)


def twine_check() -> Iterator[str]:
    """What an index would refuse."""
    python = str(TOOLS / "bin" / "python")
    if not Path(python).exists():
        venv.create(TOOLS, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "twine"], check=True)
    checked = [python, "-m", "twine", "check", "--strict", *map(str, sorted(DIST.iterdir()))]
    if subprocess.run(checked).returncode:
        yield "twine check failed; its words are above"


def main() -> int:
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="build and check all the same; what is missing is only listed",
    )
    parser.add_argument(
        "--without-matrix", action="store_true", help="leave out what make test-install does"
    )
    given = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = project["version"]
    missing = [
        *missing_in_project(project),
        *other_versions(version),
        *missing_in_changelog((ROOT / "CHANGELOG.md").read_text(), version),
        *missing_in_record(version),
        *missing_in_repository(version),
    ]
    for problem in missing:
        print(f"release: {problem}", file=sys.stderr)
    if missing and not given.rehearse:
        print("release: nothing was built; RELEASING.md says what to do", file=sys.stderr)
        return 1
    sdist, wheel = build()
    wrong = [*look_into(sdist, wheel, version), *twine_check()]
    if not given.without_matrix and subprocess.run(["make", "test-install"], cwd=ROOT).returncode:
        wrong.append("make test-install failed; its words are above")
    for problem in wrong:
        print(f"release: {problem}", file=sys.stderr)
    if wrong:
        return 1
    print(f"release: in dist/: {', '.join(sorted(file.name for file in DIST.iterdir()))}")
    if missing:
        print("release: a rehearsal; not to be published while the above is missing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
