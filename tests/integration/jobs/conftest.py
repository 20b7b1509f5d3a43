"""What the tests of jobs run on."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest


@pytest.fixture(
    params=[
        "local",
        pytest.param("etcd", marks=pytest.mark.etcd),
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
    ]
)
def shared_url(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    """As that of all tests, and on Redis, too."""
    if request.param == "local":
        return f"local://{tmp_path}{root}?request_timeout=30s"
    server = urlsplit(request.getfixturevalue(request.param).url)
    # Redis grants nothing on a new root before the time-to-live has passed, or this.
    more = "&restart_delay=0" if request.param == "redis" else ""
    return f"{request.param}://{server.netloc}{root}?ttl=60&request_timeout=30s{more}"
