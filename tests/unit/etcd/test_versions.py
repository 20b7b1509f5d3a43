from __future__ import annotations

import pytest
from coordlock_etcd.status import warnings


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("3.4.30", 3),
        ("3.4.31", 2),
        ("3.4.37", 2),
        ("3.4.38", 1),
        ("3.4.42", 0),
        ("3.5.0", 3),
        ("3.5.12", 3),
        ("3.5.13", 2),
        ("3.5.23", 1),
        ("3.5.28", 0),
        ("3.6.0-rc.1", 2),
        ("3.6.4", 2),
        ("3.6.5", 1),
        ("3.6.9", 0),
        ("3.7.0", 0),
        ("4.0.0", 0),
    ],
)
def test_versions_are_warned_of_until_the_patch_that_fixed_the_bug(
    version: str, expected: int
) -> None:
    found = warnings(version)
    assert len(found) == expected
    assert all(text.startswith(f"etcd {version}: ") for text in found)


def test_a_server_that_is_too_old_is_told_so() -> None:
    assert warnings("3.3.27") == ("etcd 3.3.27 is too old: coordlock needs 3.4 or later",)


def test_nothing_is_known_of_what_is_no_version() -> None:
    assert warnings("") == ()
    assert warnings("master") == ()
