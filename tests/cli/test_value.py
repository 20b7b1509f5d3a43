"""``coordlock value``: values from the shell."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import coordlock
from tests.cli.command import Cli
from tests.cli.terminals import screen

#: Neither UTF-8 nor fit for a terminal.
RAW = b"\xff\x00\x1b[2J\n"


def document(cli: Cli, *arguments: str) -> Any:
    return json.loads(cli.run("value", *arguments, "--json").stdout)


def test_a_value_is_set_and_got_and_deleted(cli: Cli) -> None:
    done = cli.run("value", "get", "/shop/limit")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "coordlock: nothing is kept under '/shop/limit'\n"
    assert document(cli, "get", "/shop/limit") == {"key": "/shop/limit", "version": 0, "data": None}

    done = cli.run("value", "set", "/shop/limit", "20")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert cli.run("value", "get", "/shop/limit").stdout == "20"
    assert document(cli, "get", "/shop/limit") == {"key": "/shop/limit", "version": 1, "data": "20"}

    for _ in range(2):
        assert cli.run("value", "delete", "/shop/limit").returncode == 0
        assert cli.run("value", "get", "/shop/limit").returncode == 1


def test_an_empty_stdin_sets_nothing(cli: Cli) -> None:
    assert cli.run("value", "set", "/k", "one").returncode == 0
    done = cli.run("value", "set", "/k")
    assert done.returncode == 64
    assert done.stderr == "coordlock: stdin is empty: for an empty value give '' as DATA\n"
    assert cli.run("value", "get", "/k").stdout == "one"


def test_a_write_that_expects_another_version_changes_nothing(cli: Cli) -> None:
    assert cli.run("value", "set", "/k", "one", "--if-version", "0").returncode == 0
    for command in (["set", "/k", "two"], ["delete", "/k"]):
        for version, says in (("0", "'/k' exists"), ("7", "'/k' is not at version 7")):
            done = cli.run("value", *command, "--if-version", version)
            assert done.returncode == 1
            assert done.stderr == f"coordlock: nothing was written: {says}\n"
    assert cli.run("value", "get", "/k").stdout == "one"
    assert cli.run("value", "set", "/k", "two", "--if-version", "1").returncode == 0
    assert cli.run("value", "delete", "/k", "--if-version", "2").returncode == 0


def test_data_go_in_and_out_byte_by_byte(cli: Cli) -> None:
    def run(*arguments: str, data: bytes = b"") -> bytes:
        return subprocess.run(
            cli.command("value", *arguments),
            input=data,
            env=cli.environment,
            cwd=cli.directory,
            check=True,
            capture_output=True,
        ).stdout

    run("set", "/raw", data=RAW)
    assert run("get", "/raw") == RAW
    assert document(cli, "get", "/raw")["data"] is None
    assert document(cli, "get", "/raw")["base64"] == "/wAbWzJKCg=="
    run("set", "/raw", "")
    assert run("get", "/raw") == b""
    assert document(cli, "get", "/raw") == {"key": "/raw", "version": 2, "data": ""}


def test_data_cannot_steer_the_terminal(cli: Cli) -> None:
    with coordlock.connect(cli.url) as client:
        client.value("/f/raw").set(RAW)
    for command in (["get", "/f/raw"], ["ls", "/f", "--data"], ["ls", "/f", "--data"]):
        shown = "\n".join(screen(cli, 80, "value", *command))
        assert r"\xff\x00\x1b[2J\n" in shown
        assert "\x1b[2J" not in shown


def test_a_folder_is_listed_without_what_is_kept_unless_that_is_asked_for(cli: Cli) -> None:
    assert cli.run("value", "ls", "/shop").stderr == "coordlock: nothing is kept in '/shop'\n"
    assert document(cli, "ls", "/shop") == []
    cli.run("value", "set", "/shop/password", "s3cret")
    cli.run("value", "set", "/shop/limit", "20")
    cli.run("value", "set", "/shop/limit", "x" * 100)
    cli.run("value", "set", "/shop/db/host", "db1")
    for folder in ("/shop", "/shop/"):
        done = cli.run("value", "ls", folder)
        assert [line.split() for line in done.stdout.splitlines()] == [
            ["KEY", "VERSION", "BYTES"],
            ["/shop/limit", "2", "100"],
            ["/shop/password", "1", "6"],
        ]
    for command in (["ls", "/shop"], ["ls", "/shop", "--json"], ["ls", "/shop/"]):
        assert "s3cret" not in cli.run("value", *command).stdout
    lines = cli.run("value", "ls", "/shop", "--data").stdout.splitlines()
    assert lines[1].split() == ["/shop/limit", "2", "100", "x" * 39 + "…"]
    cli.run("value", "set", "/bin/zeros", input="\0" * 100)
    line = cli.run("value", "ls", "/bin", "--data").stdout.splitlines()[1]
    assert line.split()[3] == r"\x00" * 9 + r"\x0…"
    assert document(cli, "ls", "/shop", "--data")[1] == {
        "key": "/shop/password",
        "version": 1,
        "bytes": 6,
        "data": "s3cret",
    }


def test_a_key_is_followed(cli: Cli) -> None:
    with (
        coordlock.connect(cli.url) as client,
        cli.started("value", "get", "/shop/limit", "--follow") as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "nothing is kept\n"
        client.value("/shop/limit").set(b"20")
        assert process.stdout.readline() == "1  20\n"
        client.value("/shop/limit").set(b"30")
        assert process.stdout.readline() == "2  30\n"
        client.value("/shop/limit").delete()
        assert process.stdout.readline() == "nothing is kept\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT


def test_a_folder_is_followed(cli: Cli) -> None:
    with (
        coordlock.connect(cli.url) as client,
        cli.started("value", "ls", "/shop", "--follow", "--data") as process,
        cli.started("value", "ls", "/shop", "-f", "--json") as documents,
    ):
        assert process.stdout is not None
        assert documents.stdout is not None
        assert process.stdout.readline() == "nothing is kept\n"
        assert json.loads(documents.stdout.readline()) == {"folder": "/shop/", "values": []}
        client.transaction().put("/shop/host", b"db1").put("/shop/port", b"1").commit()
        lines = [process.stdout.readline() for _ in range(2)]
        assert lines == ["added    /shop/host  1  db1\n", "added    /shop/port  1  1\n"]
        [host, port] = json.loads(documents.stdout.readline())["values"]
        assert (host["key"], port["key"]) == ("/shop/host", "/shop/port")
        client.transaction().put("/shop/host", b"db2").delete("/shop/port").commit()
        lines = [process.stdout.readline() for _ in range(2)]
        assert lines == ["removed  /shop/port\n", "changed  /shop/host  2  db2\n"]


def test_a_wrong_key_is_told_before_stdin_is_read(cli: Cli) -> None:
    with cli.started("value", "set", "no-path") as process:  # whose stdin stays open
        assert process.wait(60) == 64
