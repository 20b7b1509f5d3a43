"""A URL for each backend, and what a test asks to know that every lock was released."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest


@pytest.fixture(
    params=[
        "memory",
        "local",
        pytest.param("etcd", marks=pytest.mark.etcd),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
    ]
)
def url(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    """A root of this test's own on each backend."""
    match request.param:
        case "memory":
            return f"memory://{root.strip('/')}"
        case "local":
            return f"local://{tmp_path}{root}?request_timeout=30s"
        case service:
            server = urlsplit(request.getfixturevalue(service).url)
            return f"{service}://{server.netloc}{root}"
