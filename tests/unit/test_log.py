"""coordlock's log calls its handlers, which are the application's code, in a thread of its own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from coordlock.runtime.log import Log, flush

BOUND = 30.0


class Records(logging.Handler):
    """Keeps what is logged, and may be made to block."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.threads: list[str] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def emit(self, record: logging.LogRecord) -> None:
        self.may_go_on.wait(BOUND)
        self.records.append(record)
        self.threads.append(threading.current_thread().name)


@pytest.fixture
def log() -> Log:
    return Log("coordlock.test")


@pytest.fixture
def handler(log: Log) -> Iterator[Records]:
    handler = Records()
    log.logger.addHandler(handler)
    yield handler
    handler.may_go_on.set()
    log.logger.removeHandler(handler)


def test_a_record_tells_who_logged_it_and_in_which_thread(log: Log, handler: Records) -> None:
    log.warning("%s is %d", "seven", 7)
    assert flush(BOUND)
    [record] = handler.records
    assert record.getMessage() == "seven is 7"
    assert (record.name, record.levelname) == ("coordlock.test", "WARNING")
    assert record.filename == os.path.basename(__file__)
    assert record.funcName == "test_a_record_tells_who_logged_it_and_in_which_thread"
    assert record.thread == threading.get_ident()
    assert handler.threads == ["coordlock-log"]


def test_an_exception_is_logged_with_its_traceback(log: Log, handler: Records) -> None:
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        log.exception("it failed")
    assert flush(BOUND)
    [record] = handler.records
    assert logging.Formatter().format(record).splitlines()[-1] == "ZeroDivisionError"


def test_what_is_below_the_level_is_not_logged(log: Log, handler: Records) -> None:
    log.logger.setLevel(logging.ERROR)
    try:
        log.warning("a trifle")
        assert flush(BOUND)
    finally:
        log.logger.setLevel(logging.NOTSET)
    assert handler.records == []


def test_a_handler_that_blocks_blocks_nobody_who_logs(log: Log, handler: Records) -> None:
    handler.may_go_on.clear()
    for number in range(3):
        log.warning("%d", number)
    assert not flush(0.05)
    handler.may_go_on.set()
    assert flush(BOUND)
    assert [record.getMessage() for record in handler.records] == ["0", "1", "2"]


def run(code: str) -> str:
    """What ``code`` prints, without what begins each line of the log."""
    return printed(code).replace("coordlock: ", "")


def printed(code: str) -> str:
    done = subprocess.run(
        # Python 3.12 and later warn of forks among threads, which these tests are about.
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout + done.stderr


def test_what_was_logged_last_is_written_before_the_interpreter_exits() -> None:
    assert (
        run("from coordlock.runtime.log import Log\nLog('coordlock').warning('goodbye')")
        == "goodbye\n"
    )


def test_a_line_of_a_program_that_configures_no_log_names_the_library() -> None:
    code = (
        "from coordlock.runtime.log import Log\nLog('coordlock').warning('a session is in doubt')"
    )
    assert printed(code) == "coordlock: a session is in doubt\n"
    configured = f"import logging\nlogging.basicConfig(format='%(name)s: %(message)s')\n{code}"
    assert printed(configured) == "coordlock: a session is in doubt\n"


def test_what_is_logged_at_the_exit_is_written_too() -> None:
    code = """
import atexit
from coordlock.runtime.log import Log
Log("coordlock").warning("hello")
atexit.register(Log("coordlock").warning, "goodbye")
"""
    assert run(code).splitlines() == ["hello", "goodbye"]


def test_a_forked_child_logs_its_own_and_nothing_of_its_parents() -> None:
    code = """
import logging, os, sys, threading, time
from coordlock.runtime.log import Log, flush

stands_still, goes_on = threading.Event(), threading.Event()

class Handler(logging.StreamHandler):
    def emit(self, record):
        if os.getpid() == parent:
            stands_still.set()
            goes_on.wait()
        super().emit(record)

parent = os.getpid()
logging.getLogger().addHandler(Handler(sys.stdout))
log = Log("coordlock")
log.warning("the parent's first")
stands_still.wait()
log.warning("the parent's second")
child = os.fork()
if not child:
    log.warning("the child's")
    flush(30)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
goes_on.set()
"""
    lines = run(code).splitlines()
    assert lines == ["the child's", "the parent's first", "the parent's second"]


def test_children_that_multiprocessing_forks_write_what_they_logged() -> None:
    code = """
import multiprocessing
from coordlock.runtime.log import Log

def work(number):
    Log("coordlock").warning("%d", number)

if __name__ == "__main__":
    Log("coordlock").warning("parent")
    for number in range(3):
        child = multiprocessing.get_context("fork").Process(target=work, args=(number,))
        child.start()
        child.join()
"""
    assert run(code).split() == ["parent", "0", "1", "2"]


def test_filters_see_the_context_of_whoever_logs(log: Log, handler: Records) -> None:
    request = ContextVar("request", default="none")
    seen: list[str] = []

    def note(_: logging.LogRecord) -> bool:
        seen.append(request.get())
        return True

    handler.addFilter(note)
    request.set("the seventh")
    log.warning("x")
    assert flush(BOUND)
    assert seen == ["the seventh"]


def test_a_finalizer_may_log_while_the_interpreter_exits() -> None:
    code = """
import builtins, threading, time
from coordlock.runtime.log import Log

log = Log("coordlock")

class Late:
    def __del__(self):
        log.warning("goodbye")

late = builtins.late = Late()
late.me = late
log.warning("hello")
while any(thread.name == "coordlock-log" for thread in threading.enumerate()):
    time.sleep(0.01)
"""
    assert run(code).splitlines()[0] == "hello"
