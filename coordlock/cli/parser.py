"""The words of a command line: what commands take, their help, and their mistakes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn, Self

from coordlock.cli.exits import Exit
from coordlock.cli.signals import end_with_reader
from coordlock.cli.text import echo, folded, terminal_width

__all__ = [
    "Aborted",
    "Group",
    "Lost",
    "Parser",
    "Refused",
    "UsageError",
    "did_you_mean",
    "one_of",
    "whole",
]

#: Help is no wider than this, in columns: longer lines are hard to read.
_WIDEST: Final = 78
#: Where the help of an option begins, in columns, if the option is no longer.
_MARGIN: Final = 34

#: The names that flock(1) and watch(1) have taught people, with ours.
_FLOCKS: Final = {"-w": "--timeout", "--wait": "--timeout", "--watch": "--follow"}

#: What a command does: it takes its arguments by name, and gives its exit status, or None for 0.
Action = Callable[..., int | None]


class UsageError(Exception):
    """A command line that says nothing that can be done."""

    def __init__(self, problem: str, command: str = "") -> None:
        super().__init__(problem)
        #: Whose help tells more, if any.
        self.command: Final = command


class Aborted(Exception):
    """A person said no."""


class Refused(Exception):
    """What was asked for is busy or full, and a message has said so: end with ``status``."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status: Final = status


class Lost(Exception):
    """The lock was lost while it was held, and a message has said so."""

    def __init__(self, *, ending: bool = False) -> None:
        super().__init__("the command was ended, because the lock ran out")
        #: Whether a signal had asked to end.
        self.ending: Final = ending


class _Formatter(argparse.HelpFormatter):
    #: Columns. Set before help is made: the parser makes a formatter for each argument, too.
    width: ClassVar = _WIDEST

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_MARGIN, width=self.width)

    def add_usage(
        self, usage: Any, actions: Any, groups: Any, prefix: str | None = "Usage: "
    ) -> None:
        super().add_usage(usage, actions, groups, prefix or "Usage: ")

    def _format_action_invocation(self, action: argparse.Action) -> str:
        # The value once, behind all of the names.
        shown = ", ".join(action.option_strings) or str(action.metavar)
        return f"{shown} {action.metavar}" if action.nargs is None and action.metavar else shown

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        parts = text.split("\n\n")
        # A paragraph with columns in it keeps its lines.
        return "\n\n".join(
            "\n".join(indent + line for line in part.splitlines())
            if "   " in part
            else fill(part, width, indent)
            for part in parts
        )


class Parser(argparse.ArgumentParser):
    """The parser of one command, which is ``action``; its docstring is the help.

    Args:
        name: the command, as it is called: ``coordlock run``.
        usage: what follows it.
        example: a line that people would write.
    """

    def __init__(self, name: str, action: Action, *, usage: str, example: str = "") -> None:
        super().__init__(
            name,
            f"{name} {usage}",
            epilog=f"Example: {example}" if example else None,
            formatter_class=_Formatter,
            add_help=False,
            allow_abbrev=False,
        )
        #: Whether another program's words follow, which `parsed` is not given.
        self.has_rest = False
        self._action = action
        self._shown = self.add_argument_group("Options")
        #: By their names.
        self._options: dict[str, argparse.Action] = {}
        #: By the name of an argument: what makes it, and of which options.
        self._combined: dict[str, tuple[Callable[..., object], tuple[str, ...]]] = {}

    def option(self, *names: str, **how: Any) -> argparse.Action:
        """Add an option; see `argparse.ArgumentParser.add_argument`."""
        option = self._shown.add_argument(*names, **how)
        self._options.update(dict.fromkeys(names, option))
        return option

    def flag(self, *names: str, help: str, dest: str | None = None) -> None:
        """Add an option without a value."""
        dest = dest or max(names, key=len).lstrip("-").replace("-", "_")
        self.option(*names, help=help, dest=dest, action="store_true")

    def argument(self, name: str, **how: Any) -> argparse.Action:
        """Add an argument; the usage and the text of the help tell of it."""
        return self.add_argument(name, help=argparse.SUPPRESS, **how)

    def combine(self, name: str, make: Callable[..., object], *options: str) -> None:
        """Give the action what ``make`` makes of the values of ``options``, as ``name``."""
        self._combined[name] = make, options

    def finished(self) -> Self:
        """This, with what every command takes at its end."""
        self.option("-h", "--help", action="help", help="Show this message and exit.")
        return self

    def options(self) -> list[argparse.Action]:
        """The options, in order."""
        return list(dict.fromkeys(self._options.values()))

    def call(self, words: Sequence[str], inherited: Mapping[str, object]) -> int:
        """Do what ``words`` say; the exit status. What they leave out is ``inherited``."""
        return self.act(vars(self.parsed(words)), inherited)

    def act(self, arguments: dict[str, object], inherited: Mapping[str, object]) -> int:
        """The command with ``arguments``, which came before it where they are None."""
        for name, value in inherited.items():
            if arguments[name] is None:
                arguments[name] = value
        for name, (make, options) in self._combined.items():
            arguments[name] = make(*(arguments.pop(option) for option in options))
        if arguments.get("follow"):
            end_with_reader()
        status = self._action(**arguments)
        return Exit.OK if status is None else status

    def parsed(self, words: Sequence[str]) -> argparse.Namespace:
        """What ``words`` say. Raises `UsageError`."""
        # Options that do not exist come first, or a missing name would be told in their place.
        self.split(words, len(words))
        # Names that begin with a dash follow a --, which only one of the two understands.
        parse = self.parse_known_args if "--" in words else self.parse_known_intermixed_args
        found, unknown = parse(words)
        if unknown:
            self.refuse(unknown[0])
        return found

    def refuse(self, word: str) -> NoReturn:
        """Raise `UsageError` for a word that has no place here."""
        if (ours := _FLOCKS.get(word[:2] if word[1:2] != "-" else word)) in self._options:
            self.error(f"no such option: {word}; write {ours}")
        if word[:1] == "-" and word[1:2].isdigit():
            self.error(f"no such option: {word}; write -- before an argument that begins with -")
        kind = "option" if word.startswith("-") else "argument"
        self.error(f"no such {kind}: {word}" + did_you_mean(word, self._options, before="; "))

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`."""
        raise UsageError(message, self.prog)

    def split(self, words: Sequence[str], arguments: int) -> tuple[list[str], list[str]]:
        """The words up to and with so many ``arguments``, and those after, without a -- between.

        Options with their values belong to the first part, as far as they stand there. Raises
        `UsageError` for an option that is none.
        """
        place = 0
        while place < len(words):
            word = words[place]
            if word == "--":
                return list(words[:place]), list(words[place + 1 :])
            if word.startswith("-") and word != "-":
                place += 2 if self._takes_the_next(word) else 1
            elif arguments:
                arguments -= 1
                place += 1
            else:
                break
        return list(words[:place]), list(words[place:])

    def _takes_the_next(self, word: str) -> bool:
        """Whether the value of the option ``word``, or of its last letter, is the next word."""
        if word.startswith("--"):
            name, is_given, _ = word.partition("=")
            return self._known(name, name).nargs is None and not is_given
        for at, letter in enumerate(word[1:], 2):
            if self._known(f"-{letter}", word).nargs is None:
                return at == len(word)
        return False

    def _known(self, name: str, word: str) -> argparse.Action:
        if name not in self._options:
            self.refuse(word)
        return self._options[name]

    def format_help(self) -> str:
        """The help, as wide as the terminal."""
        from inspect import cleandoc  # for this alone, as are the words of the docstring

        _Formatter.width = min(terminal_width(80), 80) - 2
        self.description = cleandoc(self._action.__doc__ or "")
        return super().format_help()

    def print_help(self, file: object = None) -> None:
        """Print the help. Raises OSError if it cannot be written, which argparse would hide."""
        echo(self.format_help(), end="")


class Group(Parser):
    """A command with commands of its own, each loaded when it is asked for."""

    def __init__(
        self,
        name: str,
        action: Action,
        *,
        usage: str,
        commands: Mapping[str, str],
        load: Callable[[str], Parser],
        example: str = "",
    ) -> None:
        super().__init__(name, action, usage=usage, example=example)
        #: Each one's summary.
        self.commands: Final = commands
        #: Makes the parser of one.
        self.load: Final = load

    def call(self, words: Sequence[str], inherited: Mapping[str, object]) -> int:
        """Do what ``words`` say, or have the command do it that is named in them."""
        own, rest = self.split(words, 0)
        arguments = vars(self.parsed(own))
        if not rest:
            return self.act(arguments, inherited)
        name = rest[0]
        if name not in self.commands:
            near = did_you_mean(name, self.commands) or f"there are {', '.join(self.commands)}"
            self.error(f"no such command: {name}; {near}")
        passed = self.passed_on(arguments, own, name, inherited)
        return self.load(name).call(rest[1:], passed)

    def passed_on(
        self,
        arguments: dict[str, object],
        words: Sequence[str],
        name: str,
        inherited: Mapping[str, object],
    ) -> Mapping[str, object]:
        """What the command ``name`` inherits of ``arguments``, which ``words`` before it say."""
        if words:
            self.error(f"write the options of {name} after it")
        return inherited

    def format_help(self) -> str:
        """The help, with the commands."""
        epilog, self.epilog = self.epilog, None
        text = super().format_help() + "\n" + "\n".join(self._listed())
        self.epilog = epilog
        return text + (f"\n{epilog}\n" if epilog else "")

    def _listed(self) -> Iterator[str]:
        yield "Commands:"
        width = max(map(len, self.commands))
        for name, summary in self.commands.items():
            first, *rest = folded(summary, _Formatter.width, taken=width + 4, indent=width + 4)
            yield f"  {name:<{width}}  {first}"
            yield from (" " * (width + 4) + line for line in rest)
        yield ""


def did_you_mean(word: str, known: Iterable[str], *, before: str = "", after: str = "") -> str:
    """A question between ``before`` and ``after``, if ``word`` is nearly one of ``known``."""
    from difflib import get_close_matches  # for mistakes alone

    # A lower cutoff would take "--echo" for "--reach".
    found = get_close_matches(word.partition("=")[0], known, 1, cutoff=0.8)
    return f"{before}did you mean {found[0]}?{after}" if found else ""


def whole(low: int, high: int) -> Callable[[str], int]:
    """Reads whole numbers from ``low`` to ``high``."""

    def read(text: str) -> int:
        try:
            if low <= (number := int(text)) <= high:
                return number
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low} to {high}")

    return read


def one_of(known: Sequence[str], *, upper: bool = False) -> Callable[[str], str]:
    """Reads one of ``known``, in any case where these are in capitals."""

    def read(text: str) -> str:
        found = text.upper() if upper else text
        if found not in known:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(known)}")
        return found

    return read
