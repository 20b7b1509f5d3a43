"""Curator's own locks, in a Java process: the peer of coordlock's on ZooKeeper."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Final, Self

from testbed.servers.guard import guarded
from testbed.servers.process import ServerFailed
from testbed.servers.zookeeper import ZooKeeper

__all__ = ["Curator", "CuratorLock", "curator_is_installed"]

# Debian's, also where ZooKeeper's jars are those of another release.
_JAVA: Final = Path("/usr/share/java")
# Debian's Java runtime has the compiler, without a command for it.
_COMPILER: Final = "jdk.compiler/com.sun.tools.javac.Main"
_JARS: Final = [
    _JAVA / f"{name}.jar"
    for name in (
        "curator-recipes",
        "curator-framework",
        "curator-client",
        "guava",
        "slf4j-api",
        "slf4j-simple",
        "zookeeper",
        "zookeeper-jute",
    )
]
_CLASSPATH: Final = ":".join(map(str, _JARS))
_BOUND: Final = 60.0


def curator_is_installed() -> bool:
    """Whether Debian's Curator and a Java runtime are there."""
    return shutil.which("java") is not None and _JARS[0].exists()


class Curator:
    """A process with one Curator client; a context manager that compiles, starts and ends it.

    ``driver`` is the source of the class ``BySequence``, which the peer uses.
    """

    def __init__(self, directory: Path, zookeeper: ZooKeeper, driver: str) -> None:
        self._directory = directory
        self._driver = driver
        self._hosts = ",".join(zookeeper.endpoint.hosts)
        self._log = directory / "log"
        self._numbers = itertools.count()
        self._answers: dict[str, Future[str]] = {}
        self._writing = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def lock(self, recipe: str, path: str) -> CuratorLock:
        """A lock of Curator's, by the name that ``Peer.java`` has for the recipe."""
        return CuratorLock(self, str(next(self._numbers)), recipe, path)

    def ask(self, number: str, *words: str) -> Future[str]:
        """What the process says next about ``number`` when told ``words``."""
        assert self._process is not None
        assert self._process.stdin is not None
        answer = self._answers[number] = Future()
        with self._writing:
            self._process.stdin.write(f"{' '.join([number, *words])}\n")
            self._process.stdin.flush()
        return answer

    def __enter__(self) -> Self:
        self._compile()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                guarded(
                    [
                        *("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                        *("-cp", f"{self._directory}:{_CLASSPATH}", "Peer", self._hosts),
                    ]
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _compile(self) -> None:
        """The peer and the driver."""
        source = self._directory / "BySequence.java"
        source.write_text(self._driver)
        command = ["java", "-XX:TieredStopAtLevel=1", "--module", _COMPILER, "-cp", _CLASSPATH]
        sources = [str(Path(__file__).with_name("Peer.java")), str(source)]
        done = subprocess.run(
            [*command, "-d", str(self._directory), *sources],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ServerFailed(f"{sources} were not compiled:\n{done.stdout}{done.stderr}")

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, word = line.split()
            self._answers.pop(number).set_result(word)
        for answer in self._answers.values():
            answer.set_exception(ServerFailed(f"Curator ended:\n{self._log.read_text()}"))


class CuratorLock:
    """One acquisition of a lock of Curator's; a context manager that holds it."""

    def __init__(self, curator: Curator, number: str, recipe: str, path: str) -> None:
        self._curator = curator
        self._number = number
        self._words = (recipe, path)

    def ask(self, timeout: float = _BOUND) -> Future[str]:
        """Begin to acquire: ``granted``, or ``refused`` after ``timeout`` seconds."""
        return self._curator.ask(self._number, *self._words, str(round(timeout * 1000)))

    def try_acquire(self) -> bool:
        """Acquire without waiting."""
        return self.ask(0).result(_BOUND) == "granted"

    def release(self) -> None:
        """Release what was granted."""
        assert self._curator.ask(self._number, "release").result(_BOUND) == "released"

    def __enter__(self) -> Self:
        assert self.ask().result(_BOUND) == "granted"
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
