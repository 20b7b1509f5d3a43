"""Runs of the tests in the background of a script, whose signals the shell has ignored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
#: Prints which of the signals it ignores.
ASKS = """
import signal, sys
print([one for one in map(int, sys.argv[1:]) if signal.getsignal(one) is signal.SIG_IGN])
"""
#: Becomes its arguments, as nohup and the & of a script start them.
BEGINS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_ctrl_c_comes_to_the_tests_and_all_signals_to_what_they_start() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    command = [sys.executable, "-c", ASKS, *(str(int(number)) for number in SIGNALS)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_so_they_do_where_the_run_was_started_with_these_signals_ignored() -> None:
    test = (
        f"{__file__}::{test_ctrl_c_comes_to_the_tests_and_all_signals_to_what_they_start.__name__}"
    )
    done = subprocess.run(
        [sys.executable, "-c", BEGINS, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        env={name: value for name, value in os.environ.items() if "PYTEST" not in name},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout
