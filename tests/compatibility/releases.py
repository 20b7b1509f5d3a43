"""Earlier states of coordlock, which `docs/reference/compatibility.md` promises to get on with."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Final

__all__ = ["BEFORE_LANES", "FIRST", "unpack"]

ROOT: Final = Path(__file__).parents[2]

#: The first commit with the layout of 1.0 in all services. The release itself takes its place.
FIRST: Final = "eb35efa4addf05826a3994623ef37103001d607b"
#: The last one with another layout of work queues. Whatever else it stores is as in 1.0.
BEFORE_LANES: Final = "73e8bb5c7cf5d62b6374645c73130838b87388a6"


def unpack(commit: str, directory: Path) -> str:
    """The packages of ``commit``, below ``directory``; the PYTHONPATH that leads to them."""
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "coordlock", "backends"], capture_output=True
    )
    if packed.returncode:
        raise LookupError(
            f"there is no commit {commit} in this clone; `git fetch --unshallow` gets the history: "
            f"{packed.stderr.decode()}"
        )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(directory, filter="data")
    return f"{directory}:{directory / 'backends'}"
