from __future__ import annotations

from pathlib import Path

import pytest

import coordlock

inotify = pytest.importorskip("coordlock_local.inotify")


def test_whoever_wakes_what_has_ended_by_itself_does_no_harm() -> None:
    notices = inotify.Inotify()
    notices.close()
    notices.wake()
    notices.close()


def test_a_client_may_close_at_any_moment_of_its_observers(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for _ in range(50):
        with coordlock.connect(f"local://{tmp_path}/state") as client:
            views = client.group("g").observe()
            with client.group("g").join(b""):
                views.next(60)
