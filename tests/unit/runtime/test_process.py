"""The id of the process, also after a fork."""

from __future__ import annotations

import os

from coordlock.runtime.process import PROCESS


def test_the_id_is_that_of_the_process_that_runs() -> None:
    assert PROCESS.id == os.getpid()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, b"%d" % PROCESS.id)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    found = os.read(read, 100)
    os.close(read)
    os.close(write)
    assert found == b"%d" % child
