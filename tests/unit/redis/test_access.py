"""What a URL of Redis may say; nothing here connects."""

from __future__ import annotations

import pytest
from coordlock_redis.access import servers

from coordlock.backend.config import configure
from coordlock.errors import ConfigurationError
from coordlock.runtime.clock import SYSTEM_CLOCK


def keys(url: str) -> bytes:
    """The key that `url` leads to."""
    settings = configure(url)
    tls = settings.scheme == "rediss"
    return servers(settings, None, SYSTEM_CLOCK, b"", tls=tls).key


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey"])
def test_a_root_of_digits_would_be_taken_for_a_database(scheme: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        keys(f"{scheme}://me:secret@a,b:7000/3")
    assert f"write {scheme}://a:6379,b:7000?db=3 for that" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("redis://a/?db=3", b"{/}:state"),
        ("redis://a?db=3", b"{/coordlock}:state"),
        ("redis://a/locks3", b"{/locks3}:state"),
        ("redis://a/3/4", b"{/3/4}:state"),
        ("redis+unix:///3?socket=/run/x", b"{/3}:state"),
    ],
)
def test_other_roots_are_roots(url: str, key: bytes) -> None:
    assert keys(url) == key
