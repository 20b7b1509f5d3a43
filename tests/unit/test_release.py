"""What `make release` refuses, and the README on an index page."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scripts.install_matrix import CASES
from scripts.release import (
    missing_in_changelog,
    missing_in_project,
    missing_in_record,
    other_versions,
)

ROOT = Path(__file__).parents[2]
URLS = {
    name: f"https://forge.example/coordlock/{name}"
    for name in ("Source", "Documentation", "Changelog", "Issues")
}
READY: dict[str, Any] = {
    "version": "1.0.0rc1",
    "maintainers": [{"name": "Somebody"}],
    "urls": URLS,
    "classifiers": ["Development Status :: 4 - Beta"],
}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"maintainers": []}, "has no `maintainers`"),
        ({"urls": {**URLS, "Source": ""}}, "has no Source"),
        ({"urls": {}}, "has no Source"),
        ({"version": "1.0.0"}, "does not fit 1.0.0"),
    ],
)
def test_a_project_that_lacks_something_is_refused(changed: dict[str, Any], problem: str) -> None:
    assert problem in next(missing_in_project(READY | changed))


@pytest.mark.parametrize(
    ("changelog", "problem"),
    [
        ("## [1.0.0rc2] - 2027-01-31\n", "no section [1.0.0rc1]"),
        ("## [1.0.0rc1] - unreleased\n", "gives [1.0.0rc1] no date"),
    ],
)
def test_a_changelog_that_is_not_signed_off_is_refused(changelog: str, problem: str) -> None:
    assert problem in next(missing_in_changelog(changelog, "1.0.0rc1"))


def test_the_small_distributions_have_the_version_of_coordlock() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert list(other_versions(version)) == []
    assert len(list(other_versions("0"))) == 2


@pytest.fixture
def absolute(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], str]:
    """The function of the hook, whose base only a build has."""
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    interface = ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    monkeypatch.delitem(sys.modules, "scripts.readme_links", raising=False)
    from scripts.readme_links import absolute

    return absolute


def test_on_an_index_page_all_links_of_the_readme_are_absolute(
    absolute: Callable[[str, str, str], str],
) -> None:
    text = absolute((ROOT / "README.md").read_text(), "https://forge.example/coordlock", "1.0")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert "https://forge.example/coordlock/blob/v1.0/docs/fencing.md" in targets
    assert [one for one in targets if not one.startswith(("https://", "#"))] == []


def test_the_workflow_tests_the_pythons_that_are_claimed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    tested = re.search(r"python: \[(.*)\]", workflow)
    assert tested is not None
    assert tested[1].replace('"', "").split(", ") == claimed


def test_a_final_release_needs_a_copy_of_the_record_of_the_api(tmp_path: Path) -> None:
    (tmp_path / "api.txt").write_text("new")
    assert list(missing_in_record("1.0.0rc1", tmp_path)) == []
    [problem] = missing_in_record("1.0.0", tmp_path)
    (tmp_path / "api-1.txt").write_text("old")
    assert list(missing_in_record("1.1.0", tmp_path)) == [problem]
    (tmp_path / "api-1.txt").write_text("new")
    assert list(missing_in_record("1.1.0", tmp_path)) == []


def test_the_install_matrix_tries_every_extra_for_users() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    tried = {case.extra for case in CASES} - {""}
    assert tried == set(project["optional-dependencies"]) - {"dev", "docs"}
