"""Several locks at once, and trees of locks, on the command line."""

from __future__ import annotations

import json
import sys

import pytest

from coordlock.testing.waiting import eventually
from tests.cli.command import Cli

#: Shows what a command finds of the locks, and what others see of them.
LOOK = (
    "import json, os; print(json.dumps({k: v for k, v in os.environ.items() "
    "if k.startswith('COORDLOCK_') and k != 'COORDLOCK_URL'}))"
)


def names(cli: Cli) -> list[str]:
    return [one["name"] for one in json.loads(cli.run("ls", "--json").stdout)]


def test_a_command_runs_under_several_locks_and_finds_their_tokens(cli: Cli) -> None:
    done = cli.run("run", "-l", "a", "--lock", "b c", "--", sys.executable, "-c", LOOK)
    found = json.loads(done.stdout)
    assert found["COORDLOCK_NAME"] == "a, b c"
    tokens = json.loads(found["COORDLOCK_TOKENS"])
    assert list(tokens) == ["a", "b c"]
    assert set(map(str, tokens.values())) == {found["COORDLOCK_TOKEN"]}
    assert names(cli) == []


def test_a_command_may_find_more_tokens_than_a_pipe_holds(cli: Cli) -> None:
    longs = [f"{number}-{'n' * 200}" for number in range(400)]
    words = [word for name in longs for word in ("-l", name)]
    code = "import json, os; print(len(json.loads(os.environ['COORDLOCK_TOKENS'])))"
    done = cli.run("run", *words, "--", sys.executable, "-c", code)
    assert (done.returncode, done.stdout) == (0, "400\n"), done.stderr[:200]


def test_the_command_follows_the_options_without_dashes(cli: Cli) -> None:
    done = cli.run("run", "-l", "a", "-l", "b", sys.executable, "-c", "print('done')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_name_and_further_locks_are_all_held(cli: Cli) -> None:
    done = cli.run("run", "a", "-l", "b", "--", sys.executable, "-c", LOOK)
    assert list(json.loads(json.loads(done.stdout)["COORDLOCK_TOKENS"])) == ["a", "b"]


def test_one_lock_by_option_is_a_lock_as_ever(cli: Cli) -> None:
    found = json.loads(cli.run("run", "-l", "a", "--", sys.executable, "-c", LOOK).stdout)
    assert found["COORDLOCK_NAME"] == "a"
    assert "COORDLOCK_TOKENS" not in found


def test_several_locks_that_are_busy_are_named_with_their_holder(cli: Cli) -> None:
    with cli.started("hold", "b") as holder:
        assert holder.stdout
        holder.stdout.readline()
        done = cli.run("run", "-n", "-l", "a", "-l", "b", "--", "true")
        assert done.returncode == 75
        assert done.stderr.startswith("coordlock: locks 'a', 'b' are busy: held by ")
        done = cli.run("run", "--timeout", "3", "-l", "a", "-l", "b", "--", "true")
        assert done.returncode == 75
        assert done.stderr.startswith("coordlock: lock 'b' was not granted within ")
        assert names(cli) == ["b"]


def test_hold_prints_the_token_or_all_of_it_as_json(cli: Cli) -> None:
    done = cli.run("hold", "--for", "0.1", "-l", "a", "-l", "b", "--json")
    line = json.loads(done.stdout.splitlines()[0])
    assert line["name"] == "a, b"
    assert line["tokens"] == {"a": line["token"], "b": line["token"]}
    done = cli.run("hold", "--for", "0.1", "-l", "a", "-l", "b")
    assert int(done.stdout) > line["token"]


def test_a_tree_is_held_as_one(cli: Cli) -> None:
    with cli.started("hold", "--tree", "eu/orders/42", "-l", "other") as holder:
        assert holder.stdout
        holder.stdout.readline()
        modes = [cli.show(name)[0]["mode"] for name in ("eu", "eu/orders", "eu/orders/42")]
        assert modes == ["CW", "CW", "EX"]
        assert cli.run("run", "-n", "--tree", "eu", "--shared", "--", "true").returncode == 75
        assert cli.run("run", "-n", "--tree", "eu/stock", "--", "true").returncode == 0
    eventually(lambda: names(cli) == [])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-l", "a", "-l", "b", "--permits", "2", "--", "true"], "--permits is for one NAME"),
        (["--tree", "a//b", "--", "true"], "is not a path in a tree of locks"),
        (["-l", "a", "-l", "", "--", "true"], "is empty"),
        (["-l", "a"], "there is no COMMAND"),
    ],
)
def test_what_cannot_be_acquired_is_told(cli: Cli, words: list[str], says: str) -> None:
    done = cli.run("run", *words)
    assert done.returncode == 64
    assert says in done.stderr
    assert names(cli) == []
