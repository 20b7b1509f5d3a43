from __future__ import annotations

import pytest
from coordlock_zookeeper.describe import warnings_for

from coordlock.backend.defects import Version, version_in


@pytest.mark.parametrize(
    ("srvr", "version"),
    [
        ("Zookeeper version: 3.9.3-c26634f34490bb0ea7a09cc51e05ede3b4e320ee, built on", (3, 9, 3)),
        ("Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2024-12-29", (3, 8, 0)),
        ("srvr is not executed because it is not in the whitelist.", None),
        ("", None),
    ],
)
def test_the_version_is_found(srvr: str, version: Version | None) -> None:
    assert version_in(srvr) == version


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("3.4.14", ["container", "no fixes"]),
        ("3.7.2", ["no fixes"]),
        ("3.8.3", ["ZOOKEEPER-4785"]),
        ("3.8.4", []),
        ("3.9.1", ["ZOOKEEPER-4785", "ZOOKEEPER-4712", "ZOOKEEPER-4839"]),
        ("3.9.2", ["ZOOKEEPER-4712", "ZOOKEEPER-4839"]),
        ("3.9.3", ["ZOOKEEPER-4925"]),
        ("3.9.4", []),
    ],
)
def test_what_is_known_of_a_version(version: str, words: list[str]) -> None:
    found = warnings_for(version)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))
