"""What `make release` refuses, and lists that must agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from scripts.install_matrix import CASES
from scripts.release import missing_in_changelog, missing_in_project, other_versions

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
URLS = dict.fromkeys(("Source", "Documentation", "Changelog", "Issues"), "https://forge.example")
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
        ({"version": "1.0.0"}, "does not fit 1.0.0"),
    ],
)
def test_a_project_that_lacks_something_is_refused(changed: dict[str, Any], problem: str) -> None:
    assert list(missing_in_project(READY)) == []
    assert problem in next(missing_in_project(READY | changed))


@pytest.mark.parametrize(
    "changelog", ["## [1.0.0rc2] - 2027-01-31\n", "## [1.0.0rc1] - unreleased\n"]
)
def test_a_changelog_that_is_not_signed_off_is_refused(changelog: str) -> None:
    assert "[1.0.0rc1]" in next(missing_in_changelog(changelog, "1.0.0rc1"))


def test_the_small_distributions_have_the_version_of_coordlock() -> None:
    assert list(other_versions(PROJECT["version"])) == []
    assert len(list(other_versions("0"))) == 2


def test_the_workflow_tests_the_pythons_that_are_claimed() -> None:
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    [tested] = re.findall(r"python: \[(.*)\]", workflow)
    assert tested.replace('"', "").split(", ") == claimed


def test_the_install_matrix_tries_every_extra_for_users() -> None:
    tried = {case.extra for case in CASES} - {""}
    assert tried == set(PROJECT["optional-dependencies"]) - {"dev", "docs"}
