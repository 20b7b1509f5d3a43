from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from coordlock.backend.config import _IN_URL as IN_URL
from coordlock.backend.registry import backend_for_scheme
from coordlock.settings import COMMON_OPTIONS
from coordlock.settings.keywords import Options

SNIPPET = """
from datetime import timedelta
import coordlock
coordlock.connect("etcd://h", ttl="15s", timeout=timedelta(seconds=3), tls=True)
coordlock.connect({"backend": "third-party", "of_its_own": 1})
coordlock.connect("etcd://h", tll="15s")
coordlock.connect_async("zookeeper://h", acl="everybody")
"""


SCHEMES = ("etcd", "local", "memory", "postgresql", "redis", "redis+unix", "zookeeper")
OPTIONS = [*COMMON_OPTIONS, *(one for name in SCHEMES for one in backend_for_scheme(name).options)]


def test_the_typed_options_are_those_of_the_backends() -> None:
    assert set(Options.__annotations__) == {option.name for option in OPTIONS} | {
        *IN_URL,
        "password_file",
    }


def test_the_typed_words_of_an_option_are_those_that_it_takes() -> None:
    typed = {name: get_args(hint) for name, hint in get_type_hints(Options).items()}
    choices = {name: words for name, words in typed.items() if words and str in map(type, words)}
    assert len(choices) == 9
    for option in OPTIONS:
        if option.name in choices:
            with pytest.raises(ValueError, match="one of ") as refused:
                option.parse("what it never takes")
            told = str(refused.value).removeprefix("one of ").split(", ")
            assert set(told) == set(choices[option.name]), option.name


def test_mypy_refuses_options_that_there_are_not(tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(SNIPPET)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent", str(file)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 2, done.stdout + done.stderr
    assert 'Unexpected keyword argument "tll"' in errors[0]
    assert "incompatible type \"Literal['everybody']\"" in errors[1] or '"acl"' in errors[1]
