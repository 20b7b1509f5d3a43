"""The file fence passes the suite of fences."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordlock.errors import Unsupported
from coordlock.fencing import Presented
from coordlock.fencing.files import FileFence
from coordlock.model.names import file_name
from coordlock.runtime import shared_file
from coordlock.testing.fence_contract import FenceContract, Protected


class InFiles(Protected):
    """A file for each integer, which two processes could not write at the same time."""

    def __init__(self, directory: Path) -> None:
        super().__init__(FileFence(directory / "fences"))
        self.directory = directory / "integers"
        self.directory.mkdir()

    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        with self.fence.guard(resource, token, shared):
            file = self._file(resource)
            return int(file.read_text("ascii")) if file.exists() else 0

    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        with self.fence.guard(resource, token, shared):
            self._file(resource).write_text(str(value), "ascii")

    def _file(self, resource: str) -> Path:
        return self.directory / file_name(resource)


class TestFileFence(FenceContract):
    fence = FileFence

    @pytest.fixture
    def protected(self, tmp_path: Path) -> Protected:
        return InFiles(tmp_path)


def test_a_file_system_that_machines_may_share_is_refused_unless_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_file, "_file_system", lambda path: "nfs4")
    with pytest.raises(Unsupported, match=rf"{tmp_path} is on .*\(nfs4\).*trust_filesystem=True"):
        FileFence(tmp_path)
    with FileFence(tmp_path, trust_filesystem=True).guard("alice", 1):
        pass
