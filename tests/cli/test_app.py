"""The command line as a whole: help, versions, mistakes, and how it ends."""

from __future__ import annotations

import errno
import importlib.metadata
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from coordlock import errors
from coordlock.cli.command_table import COMMANDS, below
from coordlock.cli.exits import Exit, status_of
from coordlock.cli.supervision import Limits
from coordlock.cli.text import age, folded, printable
from tests.cli.command import Cli

#: That of the formatter: wider lines would break on a terminal of 80 columns.
WIDTH = 78


def test_help_names_every_command_and_each_has_an_example(cli: Cli) -> None:
    text = cli.run("--help").stdout
    for command in below(COMMANDS[""]):
        assert f"\n  {command.path} " in text
        help = command.help(below(command))
        assert f"Example: coordlock {command.path}" in help
        assert command.documentation.partition("\n")[0] in text
        # `run` is two commands: under a lock, and once for each slot of a job.
        assert len(help.splitlines()) < (75 if command.path == "run" else 50)
    done = cli.run("run", "--help")
    assert done.returncode == 0
    assert COMMANDS["run"].help([]).rstrip() == done.stdout.rstrip()


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_is_what_the_table_says(path: str) -> None:
    command = COMMANDS[path]
    assert command.summary.endswith((".", "?"))
    names = [name for option in command.options for name in option.names]
    assert len(names) == len(set(names))
    assert not {"-w", "--wait", "--watch", "--once"}.intersection(names)
    assert all(option.help.endswith(".") for option in command.options)
    for line in command.help(below(command)).splitlines():
        assert len(line) <= WIDTH, line
    if callable(command.subject):
        known = inspect.signature(command.subject).parameters
        given = {word.dest for word in (*command.options[:-1], *command.arguments)}
        given = given - {"url", "connect_timeout"} | {"service"}
        given |= {"command"} if command.rest and not below(command) else set()
        some = any(one.kind is one.VAR_KEYWORD for one in known.values())
        assert known.keys() - {"options"} <= given
        assert some or given == known.keys()


def test_the_word_queue_is_for_work_queues() -> None:
    for command in COMMANDS.values():
        if not command.path.startswith("queue"):
            text = command.help(below(command))
            text = re.sub(r"work\s+queues?|queue +Put items.*|--queue", "", text)
            assert not re.search(r"\bqueues?\b", text), command.path


def test_the_help_keeps_its_lines_and_is_an_error_when_nobody_asked(cli: Cli) -> None:
    asked, unasked = cli.run("--help"), cli.run()
    assert (asked.returncode, asked.stderr) == (0, "")
    assert (unasked.returncode, unasked.stdout) == (64, "")
    assert unasked.stderr == asked.stdout
    assert "  coordlock ls                          which locks are in use\n" in asked.stdout


def test_the_options_of_the_command_are_never_taken_for_ours(cli: Cli) -> None:
    for line, output in (
        (["-n", "--", "echo", "-n", "x", "--"], "x --"),
        (["echo", "-n", "x"], "x"),
        (["-n", "--timeout=1", "echo", "-n", "x"], None),  # both are ours, and exclude each other
        (["--label", "echo", "-qE3", "echo", "--", "-x"], "-- -x\n"),
        (["-qE", "3", "echo", "--url", "--help"], "--url --help\n"),
    ):
        done = cli.run("run", "nightly", *line)
        assert done.stdout == (output or "")
        assert done.returncode == (0 if output else 64)


def test_a_command_that_begins_with_a_dash_needs_two_of_them(cli: Cli) -> None:
    for line in (["-x", "echo"], ["--echo", "x"]):
        done = cli.run("run", "nightly", *line)
        assert done.returncode == 64
        assert f"no such option: {line[0]}; write -- before a COMMAND" in done.stderr
    assert cli.run("run", "nightly", "--", "-x").returncode == 127


def test_a_name_that_begins_with_a_dash_follows_two_of_them(cli: Cli) -> None:
    with cli.started("hold", "--for", "60s", "--", "-rf") as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdecimal()
        assert json.loads(cli.run("show", "--json", "--", "-rf").stdout)["contenders"]
        assert cli.run("evict", "--yes", "--", "-rf").returncode == 0


def test_an_option_that_is_none_is_told_before_what_is_missing(cli: Cli) -> None:
    for line in (["hold", "-x"], ["show", "--all"], ["ls", "a", "-nz"], ["--all", "ls"]):
        done = cli.run(*line)
        assert done.returncode == 64
        option = next(word for word in line if word.startswith("-"))
        assert f"no such option: {option}; see `coordlock" in done.stderr


def test_a_word_that_is_nearly_right_is_told_the_right_one(cli: Cli) -> None:
    for line, question in (
        (
            ["run", "--tiemout", "5", "x", "--", "true"],
            "did you mean --timeout? Otherwise write --",
        ),
        (["run", "--tiemout=5", "x", "--", "true"], "did you mean --timeout? Otherwise write --"),
        (["ls", "--jsn"], "no such option: --jsn; did you mean --json? See `coordlock ls"),
        (["job"], "no such command: job; did you mean jobs? See `coordlock --help`"),
        (["jobs", "retyr", "x"], "did you mean retry?"),
    ):
        done = cli.run(*line)
        assert done.returncode == 64
        assert question in done.stderr


def test_a_negative_number_follows_two_dashes(cli: Cli) -> None:
    done = cli.run("counter", "add", "x", "-5")
    assert done.returncode == 64
    assert "no such option: -5; write -- before an argument that begins with a dash" in done.stderr
    assert cli.run("counter", "add", "x", "--", "-5").stdout == "-5\n"


@pytest.mark.parametrize("line", [["run", "x"], ["run", "x", "-n"], ["run", "x", "--"]])
def test_a_command_that_is_missing_is_missed(cli: Cli, line: list[str]) -> None:
    done = cli.run(*line)
    assert done.returncode == 64
    assert "there is no COMMAND: run NAME [OPTIONS] -- COMMAND; see `coordlock run" in done.stderr


@pytest.mark.parametrize("option", ["-c", "--command"])
def test_whoever_knows_flock_is_told_how_to_run_a_shell(cli: Cli, option: str) -> None:
    for line in ([option, "echo hi", "nightly"], ["nightly", option, "echo hi"]):
        done = cli.run("run", *line)
        assert done.returncode == 64
        assert f"no such option: {option}; for a shell, write -- sh -c 'COMMAND'" in done.stderr


def test_whoever_knows_flock_is_told_our_name_for_its_timeout(cli: Cli) -> None:
    for words in (["run", "-w", "1", "x", "--", "true"], ["hold", "-w1", "x"]):
        done = cli.run(*words)
        assert done.returncode == 64
        assert "write --timeout; see `coordlock" in done.stderr


def test_the_service_may_be_named_before_the_command(cli: Cli, tmp_path: Path) -> None:
    elsewhere = f"local://{tmp_path}/elsewhere"
    with cli.holding("x"):
        done = cli.run("--url", elsewhere, "run", "-n", "x", "--", "true")
        assert done.returncode == 0
        # What stands after the command is the nearer.
        assert cli.run("--url", elsewhere, "show", "x", "--url", cli.url).stdout
        busy = cli.run("--url", cli.url, "run", "-n", "x", "--", "true")
        assert busy.returncode == 75


def test_module_and_script_print_the_version_of_the_distribution(cli: Cli) -> None:
    version = importlib.metadata.version("coordlock")
    script = [str(Path(sys.executable).parent / "coordlock"), "--version"]
    for line in (
        cli.command("--version"),
        [sys.executable, "-m", "coordlock", "--version"],
        script,
    ):
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        assert done.stdout == f"coordlock {version}\n"


def test_what_is_to_be_done_at_the_exit_is_done(cli: Cli) -> None:
    """Tools that start with Python, for coverage say, write their results then."""
    program = (
        "import atexit, sys; from coordlock.cli import script; "
        "sys.argv[1:] = ['hold', 'x', '--for', '0']; "
        "atexit.register(print, 'at the exit', end=''); script()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=cli.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("\nat the exit")


@pytest.mark.parametrize(
    "line",
    [
        "no-such-command",
        "run",
        "run x",
        "run x --no-such-option -- true",
        "run --timeout soon x -- true",
        "run --timeout -1 x -- true",
        "run -s --permits 2 x -- true",
        "run -n --timeout 1 x -- true",
        "run --permits 0 x -- true",
        "run --mode XX x -- true",
        "run -E 256 x -- true",
        "run '' -- true",
        f"run {'n' * 256} -- true",
        "show ''",
        "leader ''",
        "elect '' -- true",
        f"elect sched --value {'x' * 70_000} -- true",
        "evict x --all --token 3 --yes",
        "demo --ttl",
        "group join",
        "group join '' -- true",
        f"group join web --value {'x' * 70_000} -- true",
        "group members ''",
        "group sing",
        "delete",
        "delete '' --yes",
        "counter add n much",
        "counter get ''",
        "gate shut",
        "gate wait g -n --timeout 1",
        "latch down l",
        "latch down l 0",
        "queue work q",
        "queue put ''",
        "queue put q x --lines",
        "queue retry q",
        "queue retry q x",
        "queue ls",
        "queue remove q 1",
        "queue remove q --yes",
        "queue remove q x --yes",
        "queue purge q",
        "queue work q --concurrency 0 -- true",
        "queue work q --count 0 -- true",
        "value get",
        "value get no-path",
        "value get /shop/",
        "value set /a//b x",
        "value set /k x --if-version -1",
        "value ls /",
    ],
)
def test_mistakes_give_64_and_one_line(cli: Cli, line: str) -> None:
    done = cli.run(*shlex.split(line))
    assert (done.returncode, done.stdout) == (64, ""), done
    assert done.stderr.startswith("coordlock: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("etdc://host", "etcd://"),
        ("etcd://host?tttl=3", "ttl"),
        ("etcd://host?request_timeout=never", "request_timeout"),
        ("memory://", "local://"),
        ("etcd://user:secret@host?x=1", "x"),
    ],
)
def test_a_bad_configuration_gives_78_and_names_what_is_accepted(
    cli: Cli, url: str, part: str
) -> None:
    for command in (["run", "x", "--", "true"], ["ls"], ["demo"]):
        done = cli.run(*command[:1], "--url", url, *command[1:])
        assert done.returncode == 78, done
        assert part in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert "secret" not in done.stderr


@pytest.mark.etcd
def test_a_server_that_is_not_there_gives_69_within_the_timeout(cli: Cli) -> None:
    """The fault: connection refused."""
    done = cli.run(
        "run", "--timeout", "1s", "--url", "etcd://127.0.0.1:1", "x", "--", "echo", "ran"
    )
    assert (done.returncode, done.stdout) == (69, "")
    assert len(done.stderr.splitlines()) == 1
    assert "doctor" in done.stderr


def test_a_reader_that_has_enough_gets_no_complaint(cli: Cli) -> None:
    line = " ".join(cli.command("show", "x", "--json"))
    # The reader is gone before anything is written.
    script = f"{{ sleep 0.2; {line}; echo $? >&2; }} | true"
    done = subprocess.run(
        ["sh", "-c", script], env=cli.environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == "1\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_every_command_works_on_closed_standard_files(cli: Cli, closed: str) -> None:
    def status(*arguments: str) -> int:
        line = " ".join(f"'{word}'" for word in cli.command(*arguments))
        shell = ["sh", "-c", f"{line} {closed}"]
        done = subprocess.run(
            shell, env=cli.environment, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr
        assert "internal error" not in done.stderr
        return done.returncode

    with cli.holding("x"):
        assert status("ls") == status("show", "x") == status("doctor") == 0
        assert status("evict", "x") == 64
    assert status("hold", "y", "--for", "0") == status("run", "y", "--", "true") == 0
    assert status("no-such-command") == 64


@pytest.mark.parametrize("words", [("show", "x", "--json"), ("run", "--help")])
def test_output_that_cannot_be_written_is_an_error_in_one_line(cli: Cli, words: list[str]) -> None:
    """The fault: the disk is full."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            cli.command(*words),
            env=cli.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 74
    assert os.strerror(errno.ENOSPC) in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("module", "extra", "words"),
    [
        ("argcomplete.shell_integration", "cli", ["--completion", "bash"]),
        ("cronsim", "cron", ["run", "night", "--cron", "0 3 * * *", "--", "true"]),
    ],
)
def test_the_missing_extra_is_named(cli: Cli, module: str, extra: str, words: list[str]) -> None:
    """The fault: a library is not installed that one option needs."""
    code = (
        f"import sys; sys.modules[{module!r}] = None; "
        "sys.argv = ['coordlock', *sys.argv[1:]]; from coordlock.cli import main; sys.exit(main())"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-c", code, *arguments]
        return subprocess.run(
            line, capture_output=True, text=True, check=False, env=cli.environment
        )

    done = run(*words)
    assert (done.returncode, done.stdout) == (78, "")
    assert f"pip install 'coordlock[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert run("run", "y", "true").returncode == 0


def test_the_library_does_not_import_the_command_line_nor_this_other_services(cli: Cli) -> None:
    code = "import sys, coordlock; assert not {'argparse', 'coordlock.cli'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = (
        "import sys; sys.argv = ['coordlock', 'ls']; from coordlock.cli import main; main(); "
        "assert not {'argparse', 'grpc', 'kazoo'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env=cli.environment, stderr=subprocess.PIPE
    )


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.AcquireTimeout("x", 1.0), 75),
        (errors.Evicted("x"), 75),
        (errors.LockLost("x", 1, "why"), 79),
        (errors.ConfigurationError("what"), 78),
        (errors.ConfigurationError.missing("what", "etcd"), 78),
        (errors.InvalidName("", "is empty"), 64),
        (errors.NameConflict("x", "a", "b", "c"), 64),
        (errors.BackendUnavailable("etcd", "why"), 69),
        (errors.WaitUnavailable("etcd", "why", "x", 1.0), 69),
        (errors.SessionLost("etcd", "why"), 69),
        (errors.TooLarge("etcd", "why"), 64),
        (errors.AuthenticationFailed("etcd", "why"), 77),
        (errors.ClientClosed(), 70),
        (OSError(errno.ENOSPC, "full"), 74),
        (ZeroDivisionError(), 70),
    ],
)
def test_every_error_has_its_status(error: Exception, status: int) -> None:
    assert status_of(error) == Exit(status)


@pytest.mark.parametrize("lease", [0.5, 1.0, 3.0, 15.0, 600.0])
@pytest.mark.parametrize("grace", [0.0, 1.0, 5.0, 3600.0])
def test_good_heartbeats_never_end_a_command_and_its_end_is_before_the_deadline(
    lease: float, grace: float
) -> None:
    limits = Limits.of(lease, grace)
    # The time-to-live is at most 3/2 of what remains right after a grant.
    assert limits.terminate < lease * 3 / 2 * 2 / 3
    assert limits.until_kill(limits.terminate) <= grace
    assert limits.until_kill(limits.terminate) <= limits.terminate - limits.kill
    assert limits.until_kill(0.0) == grace
    assert 0 < limits.kill <= 1


def test_texts_are_folded_at_words_to_the_width_that_is_left() -> None:
    assert folded("one two three", 12, taken=4, indent=2) == ["one two", "three"]
    assert folded("time-to-live 0123456789", 14, taken=2) == ["time-to-live", "0123456789"]
    # A word that fits nowhere is broken, and too narrow a terminal gets readable lines.
    assert folded("https://host/path", 14, indent=2) == ["https://host/p", "ath"]
    assert folded("one two three", 1) == ["one two", "three"]
    assert folded("", 80) == []


def test_ages_and_texts_are_fit_to_be_read() -> None:
    assert [age(s) for s in (None, 0.4, 59.9, 200, 7500, 356_400)] == [
        "-",
        "0s",
        "59s",
        "3m20s",
        "2h05m",
        "4d03h",
    ]
    assert printable("plain ü") == "plain ü"
    assert printable("a\x1b[2J\nb") == "a\\x1b[2J\\nb"


def test_the_printed_schema_takes_no_options_that_it_would_ignore(cli: Cli) -> None:
    for words in (["--restored"], ["--max-ttl", "90s"]):
        done = cli.run("setup", "postgresql", "--print", *words)
        assert done.returncode == 64
        assert "run --max-ttl and --restored afterwards" in done.stderr
