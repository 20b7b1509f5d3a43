"""Which of the members' client URLs a client can use."""

from __future__ import annotations

import pytest
from coordlock_etcd.transport.members import usable

URL = ["h1:2379", "h2:2379"]


@pytest.mark.parametrize(
    ("members", "known", "found"),
    [
        ([["http://h1:2379"], ["http://h3:2379"]], URL, ["h1:2379", "h3:2379"]),
        # One for each member: the one that the URL names, else the first.
        ([["http://10.0.0.1:2379", "http://H1:2379"]], URL, ["h1:2379"]),
        ([["http://10.0.0.3:2379", "http://h3:2379"]], URL, ["10.0.0.3:2379"]),
        # A member that has not started yet.
        ([[]], URL, []),
        # Another machine's localhost.
        ([["http://localhost:2379", "http://h3:2379"]], URL, ["h3:2379"]),
        ([["http://0.0.0.0:2379"], ["http://[::]:2379"], ["http://127.0.0.1:2379"]], URL, []),
        ([["http://localhost:2379"]], ["localhost:2379", "h2:2379"], ["localhost:2379"]),
        (
            [["http://127.0.0.1:1"], ["http://localhost:2"]],
            ["127.0.0.1:1"],
            ["127.0.0.1:1", "localhost:2"],
        ),
        # IPv6, no port, and what names no host.
        ([["http://[fe80::1]:2379"], ["http://h3"]], URL, ["[fe80::1]:2379", "h3:2379"]),
        ([["unix:///run/etcd"], ["http://"], ["http://h3:port"]], URL, []),
    ],
)
def test_each_member_is_reached_by_one_of_its_urls(
    members: list[list[str]], known: list[str], found: list[str]
) -> None:
    assert usable(members, known, tls=False) == found
    secure = [[url.replace("http:", "https:") for url in member] for member in members]
    assert usable(secure, known, tls=True) == found


def test_nothing_goes_from_https_to_http_nor_back() -> None:
    members = [["http://h1:2379", "https://h1:2378"]]
    assert usable(members, URL, tls=True) == ["h1:2378"]
    assert usable(members, URL, tls=False) == ["h1:2379"]
    assert usable([["http://h1:2379"]], URL, tls=True) == []
    assert usable([["https://h1:2379"]], URL, tls=False) == []
