"""Other systems, as far as this one can tell: what they lack is taken away. See other_system.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coordlock.runtime import shared_file

OTHER_SYSTEM = Path(__file__).with_name("other_system.py")

SERVICES = ("etcd", "zookeeper")

HOLD = """
import sys
import coordlock

with coordlock.connect(sys.argv[1]) as client:
    client.value("/app/started").set(b"")
    with client.lock("a", timeout=30) as grant:
        print(grant.token, flush=True)
        sys.stdin.readline()
"""
TAKE = """
import sys
import coordlock

with coordlock.connect(sys.argv[1]) as client, client.lock("a", timeout=30) as grant:
    assert client.lock("a").try_acquire() is None
    client.value("/app/started").set(b"")
print(grant.token)
"""


class Program(subprocess.Popen[str]):
    """A Python program on another system."""

    def __init__(self, system: str, directory: Path, code: str, *arguments: str) -> None:
        script = directory / f"{len(list(directory.iterdir()))}.py"
        script.write_text(code)
        super().__init__(
            [sys.executable, str(OTHER_SYSTEM), system, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def token(self) -> int:
        """The one that it prints once it holds the lock."""
        assert self.stdout is not None
        return int(self.stdout.readline() or self.communicate()[1])

    def end(self) -> tuple[int, str]:
        """Let it go on; its status and what else it wrote."""
        output, errors = self.communicate("\n", timeout=60)
        return self.returncode, output + errors


def test_local_locks_pass_on_without_proc_and_a_boot_id(tmp_path: Path) -> None:
    url = f"local://{tmp_path}/state"
    with Program("darwin", tmp_path, HOLD, url) as first:
        earlier = first.token()
        with Program("darwin", tmp_path, HOLD, url) as second:
            assert first.end() == (0, "")
            assert second.token() > earlier
            assert second.end() == (0, "")


def test_on_macos_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    url = f"local://{tmp_path}/state"
    with Program("darwin", tmp_path, HOLD, url) as first:
        earlier = first.token()
        with Program("darwin", tmp_path, HOLD, url) as second:
            first.kill()
            assert second.token() > earlier
            assert second.end() == (0, "")


def test_on_macos_the_drive_is_told_to_empty_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    asked: list[int] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda descriptor, command: asked.append(command))
    with (tmp_path / "a").open("w") as file:
        shared_file.to_disk(file.fileno())
    assert asked == [51]


@pytest.mark.parametrize("url", ["local:///x", "local://", ""])
def test_on_windows_local_locks_are_refused_by_name(tmp_path: Path, url: str) -> None:
    code = f"import coordlock; coordlock.connect(*[url for url in [{url!r}] if url])"
    status, words = Program("win32", tmp_path, code).end()
    assert status == 1
    refused = "local:// does not work on this system (win32)"
    assert f"ConfigurationError: {refused}" in words
    assert "use etcd:// or zookeeper://" in words


def test_on_windows_the_command_line_is_refused_by_name(tmp_path: Path) -> None:
    code = "import sys; from coordlock.cli import main; sys.exit(main())"
    status, words = Program("win32", tmp_path, code, "run", "a", "true").end()
    assert status == 78
    assert words.startswith("coordlock: the command line needs a POSIX system; on Windows")


def test_on_windows_a_file_fence_is_refused_by_name(tmp_path: Path) -> None:
    code = "from coordlock.fencing.files import FileFence; FileFence('x')"
    status, words = Program("win32", tmp_path, code).end()
    assert status == 1
    assert "Unsupported: FileFence needs flock(2), which Windows does not have" in words


def test_memory_needs_nothing_that_windows_lacks(tmp_path: Path) -> None:
    status, words = Program("win32", tmp_path, TAKE, "memory://").end()
    assert status == 0, words


@pytest.mark.parametrize(
    "service", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in SERVICES]
)
def test_etcd_and_zookeeper_need_nothing_that_windows_lacks(
    tmp_path: Path, request: pytest.FixtureRequest, service: str
) -> None:
    url = request.getfixturevalue(service).url
    status, words = Program("win32", tmp_path, TAKE, url).end()
    assert status == 0, words
