"""A minor release adds to the public API and breaks nothing; a major one removes the deprecated.

``api-1.txt`` is ``api.txt`` as the last release of 1.x had it; before 1.0 there is none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

import coordlock
from tests.unit.test_api import RECORD, describe

MAJOR: Final = int(coordlock.__version__.partition(".")[0])
#: How the line of something ends that a later major release may remove.
DEPRECATED: Final = "  # deprecated"


def broken(before: str, now: str, *, new_major: bool = False) -> Iterator[str]:
    """What programs that use the API ``before`` miss in that of ``now``."""
    here, there = parsed(before), parsed(now)
    for where, line in here.items():
        if new_major and any(one.endswith(DEPRECATED) for one in (line, here[where[:2]])):
            continue
        if where not in there:
            yield f"{' '.join(where)} is gone"
        elif not fits(line.removesuffix(DEPRECATED), there[where].removesuffix(DEPRECATED)):
            yield f"{' '.join(where)} was {line.strip()!r} and is {there[where].strip()!r}"


def parsed(record: str) -> dict[tuple[str, ...], str]:
    """The lines of a record, by module, class and name."""
    found: dict[tuple[str, ...], str] = {}
    module = owner = ""
    for line in record.splitlines():
        if line.startswith("# "):
            module = line[2:]
            continue
        words = re.sub(r"^(class|async|classmethod|staticmethod) ", "", line.strip())
        name = re.split(r"[(: ]", words, maxsplit=1)[0]
        if not line.startswith(" "):
            owner = name
            found[module, name] = line
        else:
            found[module, owner, name] = line
    return found


def fits(before: str, now: str) -> bool:
    """Whether what ``now`` describes does for all that use what ``before`` describes."""
    if before == now:
        return True
    old, new = (re.fullmatch(r"( *\S*(?: \S+)?)\((.*)\)(.*)", line) for line in (before, now))
    if old is None or new is None or (old[1], old[3]) != (new[1], new[3]):
        return False
    if "class " in old[1]:
        return set(old[2].split(", ")) <= {*new[2].split(", "), ""}
    return takes(parameters(old[2]), parameters(new[2]))


def parameters(text: str) -> ast.arguments:
    """The parameters of a signature. Of the defaults it counts that they are there."""
    text = re.sub(r"<[^<>]*>", "None", text)
    [function] = ast.parse(f"def function({text}): ...").body
    assert isinstance(function, ast.FunctionDef)
    return function.args


def takes(old: ast.arguments, new: ast.arguments) -> bool:
    """Whether each call that fits ``old`` fits ``new``."""

    def by_place(given: ast.arguments) -> list[tuple[str, bool]]:
        names = [one.arg for one in given.args]
        return [
            (name, place >= len(names) - len(given.defaults)) for place, name in enumerate(names)
        ]

    def by_name(given: ast.arguments) -> dict[str, bool]:
        keywords = zip(given.kwonlyargs, given.kw_defaults, strict=True)
        return dict(by_place(given)) | {one.arg: default is not None for one, default in keywords}

    names = [name for name, _ in by_place(old)]
    return (
        [name for name, _ in by_place(new)][: len(names)] == names
        and old.posonlyargs == new.posonlyargs == []
        and all(
            name in by_name(new) and by_name(new)[name] >= optional
            for name, optional in by_name(old).items()
        )
        and all(optional or name in by_name(old) for name, optional in by_name(new).items())
        and (old.vararg is None or new.vararg is not None)
        and (old.kwarg is None or new.kwarg is not None)
    )


BEFORE: Final = """# coordlock
class Lock(BaseLock)
    acquire(self, timeout: 'Timeout' = DEFAULT, *, label: 'str | None' = None) -> 'Grant'
    async wait(self, first: 'int') -> 'None'
    name: str
    old(self) -> 'None'  # deprecated
class Older()  # deprecated
    acquire(self) -> 'Grant'
connect(url: 'str', **options: 'Any') -> 'Client'"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class Lock(BaseLock)", "class Lock(BaseLock, Generic)"),
        ("= DEFAULT, *", "= None, *"),
        ("= DEFAULT, *", "= DEFAULT, more: 'int' = 0, *"),
        ("label: 'str | None' = None)", "label: 'str | None' = None, ttl: 'float' = 1.0)"),
        ("    name: str", "    name: str\n    more: int"),
        ("'None'  # deprecated", "'None'"),
    ],
)
def test_what_is_added_breaks_nothing(old: str, new: str) -> None:
    assert old in BEFORE
    assert not list(broken(BEFORE, BEFORE.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class Lock(BaseLock)", "class Lock()"),
        ("class Lock", "class Locked"),
        ("# coordlock", "# coordlock.more"),
        ("timeout: 'Timeout'", "wait: 'Timeout'"),
        ("= DEFAULT, *", ", *"),
        ("(self, timeout", "(self, more: 'int' = 0, timeout"),
        ("first: 'int'", "first: 'int', second: 'int'"),
        ("first: 'int'", "first: 'int', *, second: 'int'"),
        (", *, label: 'str | None' = None", ""),
        ("-> 'Grant'", "-> 'Grant | None'"),
        ("async wait", "wait"),
        ("    name: str", ""),
        ("    name: str", "    name: int"),
        ("    old(self) -> 'None'  # deprecated\n", ""),
        ("**options: 'Any'", "timeout: 'float' = 1.0"),
    ],
)
def test_what_is_taken_away_or_changed_is_found(old: str, new: str) -> None:
    assert old in BEFORE
    assert list(broken(BEFORE, BEFORE.replace(old, new)))


def test_a_major_release_may_remove_what_is_deprecated_and_nothing_else() -> None:
    older = "class Older()  # deprecated\n    acquire(self) -> 'Grant'\n"
    for line in (older, *BEFORE.replace(older, "").splitlines(keepends=True)[1:]):
        gone = list(broken(BEFORE, BEFORE.replace(line, ""), new_major=True))
        assert bool(gone) is ("deprecated" not in line), line


def test_the_record_says_what_is_deprecated() -> None:
    class Old:
        def method(self) -> None: ...

    Old.method.__deprecated__ = "use another"  # type: ignore[attr-defined]
    assert describe("method", Old.method).endswith(DEPRECATED)
    assert describe("method", property(Old.method)).endswith(DEPRECATED)


def test_every_signature_of_the_record_is_understood() -> None:
    for line in RECORD.read_text("utf-8").splitlines():
        if (signature := re.fullmatch(r".*?\((self.*)\) -> .*", line)) is not None:
            assert takes(parameters(signature[1]), parameters(signature[1])), line


def test_nothing_of_earlier_releases_is_broken() -> None:
    now = RECORD.read_text("utf-8")
    for major in (MAJOR - 1, MAJOR):
        released = RECORD.with_name(f"api-{major}.txt")
        before = released.read_text("utf-8") if released.exists() else now
        assert not list(broken(before, now, new_major=major < MAJOR))
