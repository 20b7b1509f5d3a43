"""The Redis fence's keys, and what it says of wrong use. No server."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import example, given
from hypothesis import strategies as st
from redis.crc import key_slot

from coordlock import ConfigurationError
from coordlock.fencing.redis import AsyncRedisFence, RedisFence, hash_tag

names = st.text(
    st.sampled_from("ab{}%7D:é") | st.characters(exclude_categories=["Cs"], exclude_characters="\0")
)


def marks_key(name: str) -> bytes:
    """The key of the command that reads the marks."""
    asked: list[Any] = []

    class Client:
        def execute_command(self, *words: Any) -> list[None]:
            asked.extend(words)
            return [None, None]

    RedisFence(Client()).marks(name)  # type: ignore[arg-type] # all that is used of one
    assert isinstance(asked[1], bytes)
    return asked[1]


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("alice", "{alice}"),
        ("été 🔒", "{été 🔒}"),
        ("{a}b", "{{a%7Db}"),
        ("%7D", "{%257D}"),
        ("", "{%}"),
        ("%", "{%25}"),
    ],
)
def test_the_marks_are_under_a_hash_tag(name: str, tag: str) -> None:
    assert hash_tag(name) == tag
    assert marks_key(name) == f"coordlock:fence:{tag}".encode()


@given(names)
@example("}")
@example("{}")
@example("")
def test_keys_with_the_tag_are_in_the_slot_of_the_marks(name: str) -> None:
    tag = hash_tag(name)
    slot = key_slot(marks_key(name))
    assert slot == key_slot(tag[1:-1].encode())
    assert slot == key_slot(f"{tag}:balance".encode()) == key_slot(f"accounts:{tag}".encode())


@given(names, names)
@example("%", "")
@example("}", "%7D")
def test_resources_never_share_their_marks(one: str, other: str) -> None:
    assert (marks_key(one) == marks_key(other)) == (one == other)


@pytest.mark.parametrize("prefix", ["{", "}", "a{b}c:"])
def test_a_prefix_with_braces_would_move_the_hash_tag(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="braces"):
        RedisFence(redis.Redis(), prefix=prefix)


def test_a_pipeline_gives_no_reply_to_judge() -> None:
    client, asynchronous = redis.Redis(), redis.asyncio.Redis()
    for wrong in (client.pipeline(), client.pipeline(transaction=False)):
        with pytest.raises(ConfigurationError, match="pipeline"):
            RedisFence(wrong)
    with pytest.raises(ConfigurationError, match="pipeline"):
        AsyncRedisFence(asynchronous.pipeline())


def test_without_redis_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['redis'] = None\n"
        "import coordlock.fencing\n"
        "try: import coordlock.fencing.redis\n"
        "except coordlock.errors.ConfigurationError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == (
        "the Redis fence needs the package redis; install it with: pip install 'coordlock[redis]'\n"
    )


def test_a_text_is_no_sequence_of_words() -> None:
    fence = RedisFence(redis.Redis())
    with pytest.raises(TypeError, match="GET k"):
        fence.execute_all("alice", 34, ["GET k"])
