"""Descriptors that forked children close."""

from __future__ import annotations

import os
import threading
import traceback

import pytest

from coordlock.runtime import shared_file

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_a_child_may_open_files_though_a_signal_came_as_it_closed_its_copies() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    def open_one() -> None:
        if shared_file.no_fork.acquire(timeout=10.0):
            opened.append(True)

    opened: list[bool] = []
    shared_file.closed_in_children.add(interrupted)
    try:
        child = os.fork()
    finally:
        shared_file.closed_in_children.discard(interrupted)
    if child == 0:
        try:
            thread = threading.Thread(target=open_one)
            thread.start()
            thread.join()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0 if opened else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
