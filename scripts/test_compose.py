"""Runs the contract suite against each container stack of compose/, one after the other.

A stack gets free ports and a project name of its own, so one that is up for trials is left alone.
It is removed at the end, on Ctrl-C too. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordlock.testing.waiting import eventually
from testbed.servers.endpoint import Endpoint
from testbed.servers.ports import free_port

ROOT: Final = Path(__file__).resolve().parent.parent
#: Seconds for a stack whose images are there.
HEALTHY_WITHIN: Final = 180.0
#: Seconds for an interrupted command to end in order.
PATIENCE: Final = 15.0
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

REMEDY: Final = """\
The stacks need a container engine and Compose. On Debian, as root:
    apt-get install docker.io docker-compose
and then, where no service manager starts the daemon:
    dockerd --iptables=false --ip-masq=false --ip-forward=false &
Elsewhere, install Docker Engine and its Compose plugin. compose/README.md says more.\
"""


class Failed(Exception):
    """What went wrong, in words for the user."""


@dataclass(frozen=True)
class Stack:
    """One file of compose/."""

    service: str
    nodes: int

    @property
    def name(self) -> str:
        return self.service if self.nodes == 1 else f"{self.service}-cluster"

    def choose_ports(self) -> dict[str, str]:
        """A free port for each of the variables in the file."""
        suffixes = [""] if self.nodes == 1 else [f"_{number + 1}" for number in range(self.nodes)]
        prefix = f"COORDLOCK_{self.service.upper()}_PORT"
        return {f"{prefix}{suffix}": str(free_port()) for suffix in suffixes}


STACKS: Final = [Stack(service, nodes) for service in ("etcd", "zookeeper") for nodes in (1, 3)]


def say(words: str) -> None:
    print(f"test-compose: {words}", file=sys.stderr, flush=True)


def find_compose() -> list[str]:
    """The command line of Compose; raises `Failed` when it or its engine is missing."""
    if shutil.which("docker") is None:
        raise Failed(f"there is no docker command.\n{REMEDY}")
    version = ["docker", "version", "--format", "{{.Server.Version}}"]
    asked = subprocess.run(version, capture_output=True, text=True)
    if asked.returncode:
        raise Failed(f"no container engine answers: {asked.stderr.strip()}\n{REMEDY}")
    for compose in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(compose[0]):
            tried = subprocess.run([*compose, "version", "--short"], capture_output=True, text=True)
            if tried.returncode == 0:
                say(f"Docker {asked.stdout.strip()}, Compose {tried.stdout.strip()}")
                return compose
    raise Failed(f"neither `docker compose` nor `docker-compose` works.\n{REMEDY}")


@contextmanager
def containers(compose: Sequence[str], stack: Stack, images: Mapping[str, str]) -> Iterator[str]:
    """Start a stack, give its URL when it is healthy, and remove it.

    Raises `Failed` when it does not start or does not become healthy.
    """
    ports = stack.choose_ports()
    environment = {**os.environ, **ports, **images}
    with tempfile.TemporaryDirectory(prefix="coordlock-compose-") as directory:
        # Compose 1 takes a project's name from the command line only.
        text = (ROOT / "compose" / f"{stack.name}.yaml").read_text()
        file = Path(directory, f"{stack.name}.yaml")
        file.write_text(re.sub(r"^name:.*\n", "", text, flags=re.MULTILINE))
        project = f"coordlock-test-{stack.name}-{os.getpid()}"
        command = [*compose, "--project-name", project, "--file", str(file)]
        try:
            start(command, environment, stack.nodes)
            hosts = tuple(f"127.0.0.1:{port}" for port in ports.values())
            yield Endpoint(stack.service, hosts).url()
        finally:
            with deaf():
                down = [*command, "down", "--volumes", "--timeout", "5"]
                subprocess.run(down, env=environment, start_new_session=True)


def start(command: Sequence[str], environment: Mapping[str, str], nodes: int) -> None:
    """Start a stack and wait until it is healthy; raises `Failed`."""
    if run([*command, "up", "--detach"], environment):
        raise Failed(
            "could not be started; Compose's own words are above. Where images cannot be fetched, "
            "--build makes some from Debian's packages"
        )

    def output(*words: str) -> str:
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True)
        return done.stdout

    containers = output(*command, "ps", "--all", "--quiet").split()
    form = "{{.State.Status}} {{.State.Health.Status}}"

    def is_healthy() -> bool:
        states = output("docker", "inspect", "--format", form, *containers).splitlines()
        if set(states) <= {"running starting", "running healthy"}:
            return states == ["running healthy"] * nodes
        raise Failed(f"its containers are: {', '.join(states)}")

    try:
        eventually(is_healthy, "healthy", within=HEALTHY_WITHIN)
    except (Failed, TimeoutError) as error:
        print(output(*command, "logs", "--no-color", "--tail", "30"), file=sys.stderr)
        raise Failed(f"is not healthy ({error}); its last words are above") from error


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """The status of a command, which is interrupted, and waited for, when this process is."""
    # In a session of its own it gets Ctrl-C from here only, and has the time that it needs.
    process = subprocess.Popen(command, env=environment, cwd=ROOT, start_new_session=True)
    try:
        return process.wait()
    except KeyboardInterrupt:
        with deaf():
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        raise


@contextmanager
def deaf() -> Iterator[None]:
    """Be interrupted by nothing meanwhile."""
    before = [signal.signal(one, signal.SIG_IGN) for one in SIGNALS]
    try:
        yield
    finally:
        for one, handler in zip(SIGNALS, before, strict=True):
            signal.signal(one, handler)


def try_out(compose: Sequence[str], stack: Stack, images: Mapping[str, str]) -> bool:
    """Whether the contract suite passes on a stack."""
    started = time.monotonic()
    say(f"{stack.name}: starting")
    try:
        with containers(compose, stack, images) as url:
            say(f"{stack.name}: healthy after {time.monotonic() - started:.0f} s, at {url}")
            (other,) = {one.service for one in STACKS} - {stack.service}
            status = run(
                [
                    *(sys.executable, "-m", "pytest", "tests/contract"),
                    *("-m", f"{stack.service} and not {other}"),
                    *("-n", os.environ.get("WORKERS", "6")),
                ],
                os.environ | {f"COORDLOCK_TEST_{stack.service.upper()}_URL": url},
            )
            result = f"pytest ended with status {status}" if status else "passed"
    except Failed as failed:
        result, status = str(failed), 1
    say(f"{stack.name}: {result} ({time.monotonic() - started:.0f} s)")
    return status == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="test-compose", description=__doc__)
    parser.add_argument(
        "--build",
        action="store_true",
        help="first make images from Debian's packages, and use them; see scripts/images",
    )
    names = [stack.name for stack in STACKS]
    parser.add_argument("stacks", nargs="*", metavar="STACK", help=f"one of {', '.join(names)}")
    given = parser.parse_args()
    if unknown := set(given.stacks) - set(names):
        parser.error(f"no such stack: {', '.join(sorted(unknown))}")
    stacks = [stack for stack in STACKS if not given.stacks or stack.name in given.stacks]
    for one in SIGNALS:
        signal.signal(one, signal.default_int_handler)
    try:
        compose = find_compose()
        images = {}
        if given.build:
            services = sorted({stack.service for stack in stacks})
            if run([str(ROOT / "scripts" / "images"), *services]):
                raise Failed("scripts/images failed; its own words are above")
            images = {
                f"COORDLOCK_{name.upper()}_IMAGE": f"coordlock-{name}:debian" for name in services
            }
        failed = [stack.name for stack in stacks if not try_out(compose, stack, images)]
    except Failed as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    say(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
