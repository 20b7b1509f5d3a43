"""The words of a command line: what commands take, their help, and their mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NoReturn

from coordlock.cli.exits import joined
from coordlock.cli.text import folded, terminal_width
from coordlock.errors import ConfigurationError
from coordlock.settings import duration

__all__ = [
    "SERVICE",
    "Aborted",
    "Argument",
    "Command",
    "HelpAsked",
    "Lost",
    "Option",
    "Refused",
    "UsageError",
    "did_you_mean",
    "number",
    "seconds",
    "usage_errors",
    "whole",
]

#: Help is no wider than this, in columns: longer lines are hard to read.
_WIDEST: Final = 78
#: Where the help of an option begins, in columns, if the option is no longer; and on a narrow
#: terminal, below the option.
_MARGIN: Final = 34
_NARROW_MARGIN: Final = 8

#: What flock(1) or another command calls an option of this one.
_INSTEAD: Final = {"-w": "--timeout", "--label": "--value"}

#: What the shell offers for a word: given what is there of it, and the options before.
Completer = Callable[..., Iterable[str]]


class UsageError(Exception):
    """A command line that says nothing that can be done."""

    def __init__(self, problem: str, command: str = "") -> None:
        super().__init__(problem)
        #: The command whose help tells more, if any.
        self.command: Final = command


@contextmanager
def usage_errors() -> Iterator[None]:
    """For a block that reads the command line: its ValueErrors are `UsageError`."""
    try:
        yield
    except ConfigurationError:
        raise  # such as a missing extra
    except ValueError as error:
        raise UsageError(str(error)) from None


class Aborted(Exception):
    """A person said no."""


class Refused(Exception):
    """The lock is busy or the queue is full, and a message has said so: end with ``status``."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status: Final = status


class Lost(Exception):
    """The lock was lost while it was held, and a message has said so."""

    def __init__(self, *, ending: bool = False) -> None:
        super().__init__("the command was ended, because the lock ran out")
        #: Whether a signal had asked to end.
        self.ending: Final = ending


class HelpAsked(Exception):
    """The words ask for the help of the command."""


class Option:
    """An option of commands.

    Args:
        names: such as ``-q`` and ``--quiet``.
        help: a line about it.
        metavar: what its value is called; "" for an option without a value.
        read: makes the value of its text; raises ValueError that says what is accepted.
        known: all texts that it takes, in any case if they are in capitals; () for others, too.
        default: the value without the option.
        dest: the name of the value; by default that of the option.
        group: options of one group exclude each other.
        repeats: whether it may be given several times.
        completer: offers values to the shell.
    """

    def __init__(
        self,
        *names: str,
        help: str = "",
        metavar: str = "",
        read: Callable[[str], object] = str,
        known: Sequence[str] = (),
        default: object = None,
        dest: str = "",
        group: str = "",
        repeats: bool = False,
        completer: Completer | None = None,
    ) -> None:
        self.names: Final = names
        self.help: Final = help
        self.metavar: Final = metavar
        self.known: Final = known
        self._read = read
        self.default: Final = [] if repeats else default if metavar else False
        self.dest: Final = dest or max(names, key=len).lstrip("-").replace("-", "_")
        self.group: Final = group
        self.repeats: Final = repeats
        self.completer: Final = completer

    def __str__(self) -> str:
        return " ".join(filter(None, (", ".join(self.names), self.metavar)))

    def store(self, text: str, values: dict[str, Any]) -> None:
        """Put the value of ``text`` into ``values``. Raises ValueError."""
        if self.known and text not in self.known:
            if text.upper() not in self.known:
                raise ValueError(f"{text!r} is not one of {', '.join(self.known)}")
            text = text.upper()
        value = self._read(text)
        values[self.dest] = [*values[self.dest], value] if self.repeats else value


class Argument(Option):
    """An argument of commands: one word, or from ``least`` on, or any number if it ``repeats``."""

    def __init__(self, metavar: str, dest: str, *, least: int = 1, **how: Any) -> None:
        super().__init__(metavar=metavar, dest=dest, **how)
        self.least: Final = least

    def __str__(self) -> str:
        shown = self.metavar if self.least else f"[{self.metavar}]"
        return f"{shown}..." if self.repeats else shown


def seconds(text: str, most: float = 86_400) -> float:
    """Reads durations: ``15s``, ``500ms``, ``2m`` or a number; ``most`` a day."""
    try:
        read: float = duration(0, most)(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not {error}") from None
    return read


#: Which service, and how long to try: of all commands, and also before them.
SERVICE: Final = (
    Option(
        "--url",
        metavar="URL",
        help="The service. Default: COORDLOCK_URL, a file, this machine.",
    ),
    Option(
        "--connect-timeout",
        read=seconds,
        metavar="DURATION",
        help="Fail when there is no connection after this long. Default: 10s.",
    ),
)
_HELP: Final = Option("-h", "--help", help="Show this message and exit.")


class Command:
    """A command, or a group of them.

    Args:
        path: what calls it, behind ``coordlock``.
        function: does it, as ``module.function`` below `coordlock.cli.commands`; it takes the
            values of ``words`` by name, and its docstring is the help. A group without a function
            has its module's.
        words: its options and arguments.
        example: a line that people would write, behind ``coordlock``.
        rest: what another program's words are called that follow; "" if they can't.
        usage: what can be written, where that does not follow from ``words``.
    """

    def __init__(
        self,
        path: str,
        function: str,
        *words: Option,
        example: str = "",
        rest: str = "",
        usage: Sequence[str] = (),
    ) -> None:
        self.path: Final = path
        self.arguments: Final = [word for word in words if isinstance(word, Argument)]
        own = [word for word in words if not isinstance(word, Argument)]
        self.options: Final = [*own, *SERVICE, _HELP]
        self.rest: Final = rest
        self._repeated = [option for option in self.options if option.repeats]
        self._function = function
        self._example = example
        self._usage = usage

    @property
    def runs_command(self) -> bool:
        """Whether the words of another program follow."""
        return "--" in self.rest

    @property
    def subject(self) -> Any:
        """The function that does it, or the module of a group that does nothing by itself."""
        module, _, name = self._function.partition(".")
        found = import_module(f"coordlock.cli.commands.{module}")
        return getattr(found, name) if name else found

    @property
    def documentation(self) -> str:
        """Its help without the options."""
        from inspect import cleandoc

        return cleandoc(self.subject.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first line of its help."""
        return self.documentation.partition("\n")[0]

    def read(self, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """The values that ``words`` give, and the words of the command that follows.

        Raises `UsageError`, and `HelpAsked`.
        """
        values = {word.dest: word.default for word in (*self.options[:-1], *self.arguments)}
        left, arguments = list(words), list(self.arguments)
        are_options = True
        while left:
            word = left.pop(0)
            if are_options and word == "--":
                are_options = False
                if self.rest:
                    break
            elif are_options and word.startswith("-") and word != "-":
                self._take(word, left, values)
            elif self.rest and (not arguments or any(values[one.dest] for one in self._repeated)):
                left.insert(0, word)
                break
            elif not arguments:
                self._refuse(word, ())
            else:
                self._store(arguments[0].metavar, arguments[0], word, values)
                if self.rest or not arguments[0].repeats:
                    arguments.pop(0)
        for group in {option.group for option in self.options if option.group}:
            names = [
                option.names[-1]
                for option in self.options
                if option.group == group and values[option.dest] != option.default
            ]
            if len(names) > 1:
                self.error(f"{' and '.join(names)} exclude each other")
        for argument in arguments:
            if argument.least and not values[argument.dest]:
                self.error(f"{argument.metavar} is missing")
        return values, left

    def _take(self, word: str, left: list[str], values: dict[str, Any]) -> None:
        """Read the option ``word``, or the letters in it; a value may be the next word."""
        known = {name: option for option in self.options for name in option.names}
        name, is_given, text = word.partition("=")
        if not word.startswith("--"):
            name, is_given, text = word[:2], word[2:], word[2:]
        if (option := known.get(name)) is None:
            self._refuse(word, known)
        if option is _HELP:
            raise HelpAsked
        if option.metavar:
            if not (is_given or left):
                self.error(f"{name} needs a value: {name} {option.metavar}")
            self._store(name, option, text if is_given else left.pop(0), values)
            return
        values[option.dest] = True
        if is_given:
            if word.startswith("--") or (nested := f"-{text}")[:2] not in known:
                self._refuse(word, known)
            self._take(nested, left, values)

    def _store(self, name: str, option: Option, text: str, values: dict[str, Any]) -> None:
        try:
            option.store(text, values)
        except ValueError as error:
            self.error(f"{name}: {error}")

    def _refuse(self, word: str, known: Iterable[str]) -> NoReturn:
        """Raise `UsageError` for a word that has no place here."""
        ours = _INSTEAD.get(word[:2] if word[1:2] != "-" else word, "")
        if ours in known:
            self.error(f"no such option: {word}; write {ours}")
        kind = "option" if word.startswith("-") else "argument"
        problem = f"no such {kind}: {word}"
        if self.runs_command and word in ("-c", "--command"):  # those of flock(1)
            self.error(f"{problem}; for a shell, write -- sh -c 'COMMAND'")
        if near := did_you_mean(word, known):
            problem += f"; {near}"
        if word.startswith("-") and (self.runs_command or word[1:2].isdigit()):
            what = "a COMMAND" if self.runs_command else "an argument"
            advice = f"write -- before {what} that begins with a dash"
            problem = joined(problem, f"otherwise {advice}" if near else advice)
        self.error(problem)

    def error(self, problem: str) -> NoReturn:
        """Raise `UsageError`."""
        raise UsageError(problem, self.name)

    @property
    def name(self) -> str:
        """As people write it."""
        return f"coordlock {self.path}".rstrip()

    @property
    def usage(self) -> list[str]:
        """What can be written, in lines."""
        arguments = " ".join(map(str, self.arguments))
        shown = f"{arguments} [OPTIONS] {self.rest}" if self.rest else f"[OPTIONS] {arguments}"
        return [f"{self.name} {form.strip()}" for form in self._usage or [shown]]

    @property
    def example(self) -> str:
        """A line that people would write, if there is one."""
        return f"coordlock {self._example}" if self._example else ""

    def help(self, commands: Iterable[Command] = ()) -> str:
        """The help, as wide as the terminal, with the ``commands`` of a group."""
        width = min(terminal_width(80) - 2, _WIDEST)
        lines = [f"{'Usage:' if n == 0 else ''!s:<7}{form}" for n, form in enumerate(self.usage)]
        for paragraph in self.documentation.split("\n\n"):
            # A paragraph with columns in it keeps its lines.
            kept = "   " in paragraph
            lines += ["", *(paragraph.splitlines() if kept else folded(paragraph, width))]
        lines += ["", "Options:"]
        margin = _MARGIN if width > 2 * _MARGIN else _NARROW_MARGIN
        lines += _columns([(str(option), option.help) for option in self.options], margin, width)
        if rows := [(command.path.rpartition(" ")[2], command.summary) for command in commands]:
            margin = max(len(name) for name, _ in rows) + 4
            lines += ["", "Commands:", *_columns(rows, margin, width)]
        if self._example:
            lines += ["", *folded(f"Example: {self.example}", width)]
        return "\n".join([*lines, ""])


def _columns(rows: Iterable[tuple[str, str]], margin: int, width: int) -> list[str]:
    """Two columns: the second begins at ``margin``, below a first one that is longer."""
    lines = []
    for name, text in rows:
        first, *others = folded(text, width, taken=margin, indent=margin)
        fits = len(name) <= margin - 4
        lines += [f"  {name:<{margin - 2}}{first}"] if fits else [f"  {name}", " " * margin + first]
        lines += [" " * margin + line for line in others]
    return lines


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question, if ``word`` is nearly one of ``known``."""
    from difflib import get_close_matches  # for mistakes alone

    # A lower cutoff would take "--echo" for "--reach".
    found = get_close_matches(word.partition("=")[0], known, 1, cutoff=0.8)
    return f"did you mean {found[0]}?" if found else ""


def whole(low: int, high: int) -> Callable[[str], int]:
    """Reads whole numbers from ``low`` to ``high``."""

    def read(text: str) -> int:
        try:
            if low <= (number := int(text)) <= high:
                return number
        except ValueError:
            pass
        raise ValueError(f"{text!r} is not a number from {low} to {high}")

    return read


def number(text: str) -> int:
    """Reads a whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
