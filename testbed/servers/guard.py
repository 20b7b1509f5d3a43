"""Child processes that don't outlive the tests, even when those are killed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

__all__ = ["guarded"]


def guarded(command: Sequence[str]) -> list[str]:
    """The command line of ``command`` that is killed when the THREAD that starts it ends.

    setpriv, not preexec_fn: running Python between fork and exec can deadlock when other threads
    (gRPC's, kazoo's) hold locks. Without setpriv, as beside Linux, it is ``command`` itself.
    """
    guard = shutil.which("setpriv")
    return [guard, "--pdeathsig", "KILL", "--", *command] if guard else list(command)
