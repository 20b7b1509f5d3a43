"""What is taken over of a client of redis-py; nothing here connects."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio
from coordlock_redis import access
from coordlock_redis.given_client import servers_of
from coordlock_redis.servers import Servers

from coordlock.backend.config import configure
from coordlock.errors import ConfigurationError
from coordlock.runtime.clock import SYSTEM_CLOCK

TLS: dict[str, Any] = {"ssl": True, "ssl_cert_reqs": "none"}


def servers(client: object) -> Servers:
    return servers_of(client, b"key", 1.0, SYSTEM_CLOCK, b"")


@pytest.mark.parametrize("own", [{}, TLS], ids=["plain sentinels", "sentinels with tls"])
@pytest.mark.parametrize("theirs", [{}, TLS], ids=["plain primary", "primary with tls"])
@pytest.mark.parametrize("module", [redis.sentinel, redis.asyncio.sentinel])
def test_sentinels_and_the_primary_each_have_tls_or_not(
    module: Any, own: dict[str, Any], theirs: dict[str, Any]
) -> None:
    sentinels = module.Sentinel([("a", 1), ("b", 2)], sentinel_kwargs=own, **theirs)
    found = servers(sentinels.master_for("main"))
    assert found.hosts == [("a", 1), ("b", 2)]
    assert (found.sentinel_tls, "ssl_cert_reqs" in found.sentinel_arguments) == (bool(own),) * 2
    assert (found.tls, "ssl_cert_reqs" in found.arguments) == (bool(theirs),) * 2


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("redis://other/x", "hosts"),
        ("redis://me@/x", "username"),
        ("redis://:secret@/x", "password"),
        ("redis://me:secret@other/x", "hosts, username, password"),
        ("redis:///x?db=4", "db"),
        ("redis:///x?sentinel=main", "sentinel"),
        ("redis:///x?sentinel_username=me", "sentinel_username"),
        ("redis:///x?sentinel_password=secret", "sentinel_password"),
    ],
)
def test_what_the_client_says_is_refused(url: str, wrong: str) -> None:
    client = redis.Redis(host="h", username="app", password="p", db=3)
    with pytest.raises(ConfigurationError, match=f"^{wrong}: ") as refused:
        access.servers(configure(url), client, SYSTEM_CLOCK, b"", tls=False)
    assert "secret" not in str(refused.value)
