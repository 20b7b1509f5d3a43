"""Programs that SIGTERM and SIGHUP end, in processes of their own.

On etcd and ZooKeeper the time-to-live is a minute, so a lock that is free sooner was released.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import coordlock
from coordlock import Client
from coordlock.testing.waiting import eventually

#: They end the same way whatever the service; ZooKeeper has threads of its own, as etcd has.
pytestmark = pytest.mark.long_on("zookeeper")

BOUND = 60.0
ENDED = 128 + signal.SIGTERM

#: How each program begins.
START = """
import asyncio, os, signal, sys, threading, time
import coordlock

URL = sys.argv[1]

def say(what):
    os.write(1, f"{what}\\n".encode())

def idle():
    # In short waits: Python does not see a signal that comes in the moment before a long one.
    while True:
        time.sleep(0.05)
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def client(shared_url: str) -> Iterator[Client]:
    with coordlock.connect(shared_url) as client:
        yield client


@pytest.fixture
def start(shared_url: str) -> Iterator[Start]:
    """Starts a program, by its source; what begins with ``before`` stands before Python."""
    started: list[subprocess.Popen[str]] = []

    def run(source: str, *before: str) -> subprocess.Popen[str]:
        program = START + textwrap.dedent(source)
        process = subprocess.Popen(
            [*before, sys.executable, "-c", program, shared_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        with process:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def rest(process: subprocess.Popen[str]) -> list[str]:
    """What ``process`` says until it ends."""
    return process.communicate(timeout=BOUND)[0].split()


def free(client: Client, name: str = "q") -> None:
    eventually(lambda: client.admin.contenders(name) == ())


def test_a_holder_in_the_main_thread_releases(start: Start, client: Client) -> None:
    process = start(
        """
        coordlock.release_on_signals()
        with coordlock.connect(URL) as client, client.lock("q"):
            try:
                say("holds")
                idle()
            finally:
                say("cleans")
                with client.lock("another"):
                    say("up")
        """
    )
    assert line(process) == "holds"
    process.terminate()
    assert rest(process) == ["cleans", "up"]
    assert process.returncode == ENDED
    free(client)


def test_a_wait_in_the_main_thread_ends(start: Start, client: Client) -> None:
    with client.lock("q"):
        process = start(
            """
            coordlock.release_on_signals()
            client = coordlock.connect(URL)
            with client.lock("q"):
                say("granted")
            """
        )
        eventually(lambda: len(client.admin.contenders("q")) == 2)
        process.terminate()
        assert rest(process) == []
        assert process.returncode == ENDED
        eventually(lambda: len(client.admin.contenders("q")) == 1)


def test_other_threads_end_their_work_and_stop_waiting(start: Start, client: Client) -> None:
    process = start(
        """
        coordlock.release_on_signals()
        client = coordlock.Client(URL)

        def work():
            with client.lock("q"):
                say("works")
                say(sys.stdin.readline().strip())

        def wait():
            try:
                client.lock("q").acquire()
            except coordlock.WaitCancelled as error:
                say(error.reason.split()[-1])

        threading.Thread(target=work).start()
        while not client.lock("q").owned():
            time.sleep(0.01)
        threading.Thread(target=wait).start()
        idle()
        """
    )
    assert line(process) == "works"
    eventually(lambda: len(client.admin.contenders("q")) == 2)
    process.terminate()
    assert line(process) == "SIGTERM"
    eventually(lambda: len(client.admin.contenders("q")) == 1)
    assert client.admin.contenders("q")[0].holding
    assert process.communicate("has worked", timeout=BOUND)[0].split() == ["has", "worked"]
    assert process.returncode == ENDED
    free(client)


def test_tasks_are_ended_as_by_ctrl_c(start: Start, client: Client) -> None:
    process = start(
        """
        coordlock.release_on_signals()

        async def main():
            async with coordlock.connect_async(URL) as client:
                async with client.lock("q"):
                    say("holds")
                    waiting = asyncio.create_task(client.lock("q").acquire())
                    try:
                        await asyncio.sleep(600)
                    finally:
                        say("cleans")
                        try:
                            await waiting
                        except (coordlock.WaitCancelled, asyncio.CancelledError):
                            say("up")

        asyncio.run(main())
        """
    )
    assert line(process) == "holds"
    eventually(lambda: len(client.admin.contenders("q")) == 2)
    process.terminate()
    assert rest(process) == ["cleans", "up"]
    assert process.returncode == ENDED
    free(client)


def test_a_loops_own_handler_goes_on_to_work(start: Start, client: Client) -> None:
    process = start(
        """
        async def main():
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            coordlock.release_on_signals()
            async with coordlock.connect_async(URL) as client, client.lock("q"):
                say("holds")
                await stop.wait()
                say("stops")

        asyncio.run(main())
        """
    )
    assert line(process) == "holds"
    process.terminate()
    assert rest(process) == ["stops"]
    assert process.returncode == 0
    free(client)


def test_the_programs_own_handler_is_called_and_waits_end(start: Start, client: Client) -> None:
    process = start(
        """
        stopping = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
        coordlock.release_on_signals()
        coordlock.release_on_signals()
        client = coordlock.connect(URL)
        try:
            client.lock("q").acquire()
        except coordlock.WaitCancelled:
            say(f"cancelled {stopping.is_set()}")
        """
    )
    with client.lock("q"):
        eventually(lambda: len(client.admin.contenders("q")) == 2)
        process.terminate()
        assert rest(process) == ["cancelled", "True"]
        assert process.returncode == 0
        eventually(lambda: len(client.admin.contenders("q")) == 1)


def test_a_second_signal_while_the_first_cleans_up_keeps_no_lock(
    start: Start, client: Client
) -> None:
    process = start(
        """
        coordlock.release_on_signals()
        client = coordlock.connect(URL)
        with client.lock("q"):
            try:
                say("holds")
                idle()
            finally:
                say("cleans")
                idle()
        """
    )
    assert line(process) == "holds"
    process.terminate()
    assert line(process) == "cleans"
    process.terminate()
    assert rest(process) == []
    assert process.returncode == ENDED
    free(client)


def test_a_process_of_multiprocessing_releases_when_it_is_terminated(
    start: Start, client: Client
) -> None:
    process = start(
        """
        import multiprocessing

        def work():
            client = coordlock.connect(URL)
            with client.lock("q"):
                say("holds")
                idle()

        coordlock.release_on_signals()
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        sys.stdin.readline()
        child.terminate()
        child.join()
        say(child.exitcode)
        """
    )
    assert line(process) == "holds"
    assert process.communicate("end it", timeout=BOUND)[0].split() == [str(ENDED)]
    free(client)


def test_a_hangup_ends_it_too_unless_nohup_has_it_ignored(start: Start, client: Client) -> None:
    source = """
        coordlock.release_on_signals()
        client = coordlock.connect(URL)
        with client.lock("q"):
            say("holds")
            idle()
        """
    process = start(source)
    assert line(process) == "holds"
    process.send_signal(signal.SIGHUP)
    assert rest(process) == []
    assert process.returncode == 128 + signal.SIGHUP
    free(client)
    process = start(source, "nohup")
    assert line(process) == "holds"
    process.send_signal(signal.SIGHUP)
    process.terminate()
    assert rest(process) == []
    assert process.returncode == ENDED
    free(client)


def test_a_hangup_that_the_program_handles_itself_ends_nothing(
    start: Start, client: Client
) -> None:
    process = start(
        """
        signal.signal(signal.SIGHUP, lambda *_: say("reloads"))
        coordlock.release_on_signals()
        client = coordlock.connect(URL)
        with client.lock("q"):
            say("holds")
            idle()
        """
    )
    assert line(process) == "holds"
    process.send_signal(signal.SIGHUP)
    assert line(process) == "reloads"
    process.terminate()
    assert rest(process) == []
    assert process.returncode == ENDED
    free(client)


def test_ctrl_c_that_was_asked_for_raises_keyboard_interrupt(start: Start, client: Client) -> None:
    process = start(
        """
        coordlock.release_on_signals(signal.SIGINT)
        client = coordlock.connect(URL)
        try:
            with client.lock("q"):
                say("holds")
                idle()
        except KeyboardInterrupt:
            say("interrupted")
        """
    )
    assert line(process) == "holds"
    process.send_signal(signal.SIGINT)
    assert rest(process) == ["interrupted"]
    free(client)


def may_make_pid_namespaces() -> bool:
    """Root may, but not in a container without privileges."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    tried = subprocess.run(["unshare", "--pid", "--fork", "true"], stderr=subprocess.DEVNULL)
    return tried.returncode == 0


@pytest.mark.skipif(not may_make_pid_namespaces(), reason="this user may make no PID namespace")
def test_the_first_process_of_a_container_hears_it_too(start: Start, client: Client) -> None:
    """The system gives it no signal that it has no handler for."""
    source = """
        if os.getpid() != 1:
            raise SystemExit("this is no container")
        HANDLE
        client = coordlock.connect(URL)
        with client.lock("q"):
            say("holds")
            idle()
        """
    in_container = ("unshare", "--pid", "--fork", "--kill-child")
    deaf = start(source.replace("HANDLE", ""), *in_container)
    assert line(deaf) == "holds"
    (child,) = Path(f"/proc/{deaf.pid}/task/{deaf.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)
    assert len(client.admin.contenders("q")) == 1
    os.kill(int(child), signal.SIGKILL)
    deaf.wait(BOUND)
    client.admin.evict_all("q")
    hears = start(source.replace("HANDLE", "coordlock.release_on_signals()"), *in_container)
    assert line(hears) == "holds"
    (child,) = Path(f"/proc/{hears.pid}/task/{hears.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)
    assert hears.wait(BOUND) == ENDED
    free(client)


@pytest.mark.parametrize("wrong", [signal.SIGKILL, 0, 4711, -1, "SIGTERM", 1.5])
def test_what_is_no_signal_or_cannot_be_handled_is_refused(wrong: int) -> None:
    with pytest.raises(ValueError, match=r"release_on_signals: .* (is no|can't)"):
        coordlock.release_on_signals(signal.SIGTERM, wrong)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_another_thread_cannot_set_it(start: Start) -> None:
    process = start(
        """
        def wrong():
            try:
                coordlock.release_on_signals()
            except ValueError as error:
                say("main thread only" in str(error))
        thread = threading.Thread(target=wrong)
        thread.start()
        thread.join()
        """
    )
    assert rest(process) == ["True"]
