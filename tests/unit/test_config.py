from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlock import ConfigurationError, Settings, settings_from_env
from coordlock.backend import Backend, registry
from coordlock.backend.config import configure
from coordlock.settings import COMMON_OPTIONS


class Ported(Backend):
    """A backend's face: hosts with ports, and no connection."""

    scheme = "ported"
    default_port = 2379
    default_root = "/default"


@pytest.fixture(autouse=True)
def patient() -> None:
    """The defaults are those of users here."""


@pytest.fixture(autouse=True)
def ported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes ``ported://`` a scheme, and the environment empty."""
    found = registry.backend_for_scheme

    def backend_for_scheme(scheme: str) -> type[Backend]:
        return Ported if scheme == "ported" else found(scheme)

    monkeypatch.setattr("coordlock.backend.config.backend_for_scheme", backend_for_scheme)
    for name in [name for name in os.environ if name.startswith("COORDLOCK")]:
        monkeypatch.delenv(name)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, of a user who has configured nothing."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Files


def test_a_file_gives_url_options_and_credentials(directory: Path) -> None:
    (directory / "coordlock.toml").write_text(
        'url = "ported://h1,h2:7/jobs?ttl=5s"\n'
        'ttl = 30\ntimeout = "2m"\nusername = "u"\npassword = "s"\n'
    )
    settings = configure()
    assert settings == Settings(
        "ported", ("h1:2379", "h2:7"), "/jobs", "u", "s", ttl=30.0, timeout=120.0
    )


def test_a_file_may_name_the_backend_and_hosts_apart(directory: Path) -> None:
    (directory / "coordlock.toml").write_text(
        'backend = "ported"\nhosts = ["h1", "[::1]:7"]\nroot = "/a/b"\n'
    )
    assert configure() == Settings("ported", ("h1:2379", "[::1]:7"), "/a/b")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("coordlock.toml", b"url = "),
        ("coordlock.toml", b"\xff\xfe"),
        ("coordlock.toml", b"url = 5"),
        ("coordlock.toml", b"ttl = 5"),
        ("coordlock.toml", b'url = "memory://"\nttl = 1979-05-27'),
        ("coordlock.toml", b'url = "memory://"\n[ttl]\nx = 1'),
        ("coordlock.toml", b'url = "memory://"\n[other]\nx = 1'),
        ("coordlock.toml", b"backend = 5"),
        ("coordlock.toml", b'backend = "ported"\nhosts = 5'),
        ("coordlock.toml", b'backend = "ported"\nhosts = [5]'),
        ("coordlock.toml", b'backend = "ported"\nroot = 5'),
        ("coordlock.toml", b'backend = "ported"\nusername = 5'),
        ("pyproject.toml", b"[tool]\ncoordlock = 5"),
        ("pyproject.toml", b"[tool]\ncoordlock = [1]"),
        ("pyproject.toml", b"[tool.coordlock]\nurl = true"),
    ],
    ids=str,
)
def test_a_file_that_cannot_be_used_is_an_error_that_names_it(
    directory: Path, file: str, content: bytes
) -> None:
    (directory / file).write_bytes(content)
    with pytest.raises(ConfigurationError, match=re.escape(file)):
        configure()


def test_an_option_that_cannot_be_used_is_named_before_the_file_that_gives_others(
    directory: Path,
) -> None:
    (directory / "coordlock.toml").write_text('url = "memory://"')
    with pytest.raises(
        ConfigurationError, match=r"'ttl': 'soon'.*\(configured by coordlock.toml\)"
    ):
        configure(options={"ttl": "soon"})


# How far locks have to reach


@pytest.mark.parametrize(
    ("url", "reach", "is_enough"),
    [
        ("memory://", "process", True),
        ("memory://", "machine", False),
        ("local://", "machine", True),
        ("local://", "cluster", False),
        ("etcd://h", "cluster", True),
        ("zookeeper://h", "cluster", True),
    ],
)
def test_a_backend_that_reaches_less_far_than_asked_for_is_refused(
    url: str, reach: Any, is_enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ways() -> Iterator[Callable[[], object]]:
        yield lambda: configure(url, {"reach": reach})
        yield lambda: configure(f"{url}?reach={reach}")
        yield lambda: configure({"url": url, "reach": reach})
        yield lambda: configure(replace(configure(url), reach=reach))
        monkeypatch.setenv("COORDLOCK_REACH", reach)
        yield lambda: configure(url)
        yield lambda: configure(url, {"reach": "process"})  # the variable is the deployer's
        yield lambda: configure(Settings(url.partition(":")[0]))

    for way in ways():
        if is_enough:
            way()
        else:
            with pytest.raises(ConfigurationError, match=f"requires .* the whole {reach}"):
                way()


def test_the_error_says_who_asks_what_was_found_where_and_what_to_write(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**options: str) -> str:
        with pytest.raises(ConfigurationError) as caught:
            configure(options=options)
        return str(caught.value)

    assert "the option 'reach'" in refused(reach="cluster")
    monkeypatch.setenv("COORDLOCK_REACH", "cluster")
    said = refused()
    assert "COORDLOCK_REACH requires" in said
    assert "local:// (the default, because no configuration was found)" in said
    assert "COORDLOCK_URL=etcd://" in said
    assert "memory:// (as given)" in refused(url="memory://")
    (directory / "coordlock.toml").write_text('url = "memory://"')
    assert "memory:// (from coordlock.toml)" in refused()
    monkeypatch.setenv("COORDLOCK_REACH", "machine")
    assert "COORDLOCK_URL=local://" in refused()


@pytest.mark.parametrize("value", ["", "clutser"])
def test_a_reach_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="reach"):
        configure("etcd://h", {"reach": value})
    monkeypatch.setenv("COORDLOCK_REACH", value)
    with pytest.raises(ConfigurationError, match="COORDLOCK_REACH"):
        configure("etcd://h")


# Origins


def test_settings_tell_what_chose_the_backend(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert configure().origin == "the default"
    assert configure(options={"ttl": 5}).origin == "the default"
    assert configure(options={"url": "memory://"}).origin == ""
    assert configure("local://").origin == ""
    assert configure("local://") == configure()
    monkeypatch.setenv("COORDLOCK_URL", "local://")
    assert configure().origin == "COORDLOCK_URL"


def test_of_a_service_that_the_arguments_name_no_other_source_says_anything(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "coordlock.toml").write_text('backend = "etcd"\nhosts = ["h1"]\nttl = 30\n')
    assert configure(options={"url": "redis://r"}) == configure("redis://r")
    monkeypatch.setenv("COORDLOCK_URL", "etcd://h1/payments?ttl=30")
    assert configure(options={"backend": "memory"}) == configure("memory://")


def test_a_url_and_a_backend_that_name_two_services_are_refused() -> None:
    for target, options in (
        ({"url": "etcd://h", "backend": "redis"}, {}),
        ("etcd://h", {"backend": "redis"}),
        ({"backend": "redis"}, {"url": "etcd://h"}),
    ):
        with pytest.raises(ConfigurationError, match=r"'url' names etcd.*'backend' names 'redis'"):
            configure(target, options)
    assert configure({"url": "etcd://h", "backend": "etcd"}) == configure("etcd://h")


# URLs


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ported://h", Settings("ported", ("h:2379",), "/default")),
        ("PORTED://h", Settings("ported", ("h:2379",), "/default")),
        ("ported://", Settings("ported", (), "/default")),
        ("ported:///only/root", Settings("ported", (), "/only/root")),
        ("ported://h/", Settings("ported", ("h:2379",), "/")),
        ("ported://h//", Settings("ported", ("h:2379",), "/")),
        ("ported:///?ttl=15", Settings("ported", (), "/")),
        ("ported://h//a///b//", Settings("ported", ("h:2379",), "/a/b")),
        ("ported://h/a%20b/%C3%A9", Settings("ported", ("h:2379",), "/a b/é")),
        (
            "ported://h:1,g:2,[::1],[fe80::1%25eth0]:3",
            ("h:1", "g:2", "[::1]:2379", "[fe80::1%eth0]:3"),
        ),
        ("ported://u@h", Settings("ported", ("h:2379",), "/default", "u")),
        ("ported://u:@h", Settings("ported", ("h:2379",), "/default", "u", "")),
        ("ported://u:a:b@h", Settings("ported", ("h:2379",), "/default", "u", "a:b")),
        ("ported://u:a@b@h", Settings("ported", ("h:2379",), "/default", "u", "a@b")),
        ("ported://u%3Av:%2F%3F%23@h", Settings("ported", ("h:2379",), "/default", "u:v", "/?#")),
        ("ported://h?ttl=2m", Settings("ported", ("h:2379",), "/default", ttl=120.0)),
        ("ported://h?timeout=none", Settings("ported", ("h:2379",), "/default")),
        ("ported://h?label=a%26b+c", Settings("ported", ("h:2379",), "/default", label="a&b c")),
    ],
)
def test_a_url_is_read_as_its_parts(url: str, expected: Settings | tuple[str, ...]) -> None:
    settings = configure(url)
    if isinstance(expected, Settings):
        assert settings == expected
    else:
        assert settings.hosts == expected


MALFORMED = [
    "",
    "etcd",
    "etcd:",
    "etcd:/h",
    "://h",
    "nonsense://h",
    "ported://h#fragment",
    "ported://h:0",
    "ported://h:65536",
    "ported://h:0065536",
    "ported://h:000080999999",
    "ported://h:" + "9" * 5000,
    "ported://h:-1",
    "ported://h:http",
    "ported://h:\u0661",
    "ported://h:",
    "ported://:2379",
    "ported://h,",
    "ported://,h",
    "ported://h,,g",
    "ported://::1",
    "ported://[::1",
    "ported://::1]",
    "ported://[]:1",
    "ported://h h",
    "ported://h/../x",
    "ported://h/./x",
    "ported://h/%2e%2E",
    "ported://h/a%00b",
    "ported://h/a@b",
    "ported://h?ttl",
    "ported://h?ttl=",
    "ported://h?ttl=0",
    "ported://h?ttl=0.999",
    "ported://h?ttl=3601",
    "ported://h?ttl=-5",
    "ported://h?ttl=none",
    "ported://h?ttl=15x",
    "ported://h?ttl=nan",
    "ported://h?ttl=inf",
    "ported://h?ttl=1e1",
    "ported://h?ttl=1,5",
    "ported://h?ttl=15&ttl=16",
    "ported://h?timeout=-1",
    "ported://h?request_timeout=0",
    "ported://h?label=",
    "ported://h?backend=etcd",
    "ported://h?hosts=g",
    "ported://h?password=x",
    "ported://h?nonsense=1",
    "ported://h?%20ttl=5",
    "memory://h:1",
    b"memory://h",
    5,
    True,
    [],
    ["memory://h"],
    (),
    {},
    {"url": None},
    {"url": b"memory://"},
    {"backend": ""},
    {"backend": "ported", "hosts": "h h"},
    {"backend": "ported", "hosts": {"h": 1}},
    {"backend": "ported", "root": "relative"},
    {"backend": "ported", "root": b"/x"},
    {"backend": "ported", "ttl": True},
    {"backend": "ported", "ttl": [15]},
    {"backend": "ported", "label": 5},
    {"backend": "ported", 5: 5},
]


@pytest.mark.parametrize("target", MALFORMED, ids=repr)
def test_what_is_malformed_is_refused(target: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configure(target)
    assert str(caught.value)


@pytest.mark.parametrize("option", ["sslmode=requiree", "channel_binding=yes", "gssencmode=on"])
def test_a_misspelt_word_for_libpq_is_a_mistake_of_the_configuration_and_no_outage(
    option: str,
) -> None:
    with pytest.raises(ConfigurationError, match=r"one of disable, .*prefer, require"):
        configure(f"postgresql://h/app?{option}")


def test_a_password_alone_is_what_a_url_says_without_a_user(tmp_path: Path) -> None:
    """Redis has servers with a password and no users."""
    file = tmp_path / "password"
    file.write_text("x\n")
    expected = configure("ported://:x@h")
    assert expected.username == ""
    assert configure({"backend": "ported", "hosts": "h", "password": "x"}) == expected
    assert configure(f"ported://h?password_file={file}") == expected


def test_a_host_without_a_service_is_not_taken_for_one_of_the_default() -> None:
    with pytest.raises(ConfigurationError, match="hosts is given, but no service"):
        configure(None, {"hosts": "h"})


def test_a_client_in_the_place_of_the_url_is_told_where_it_belongs() -> None:
    with pytest.raises(ConfigurationError, match="given as client="):
        configure(object())  # type: ignore[arg-type]


def test_none_in_a_mapping_is_not_given(directory: Path) -> None:
    assert configure({"url": "memory://?ttl=30", "ttl": None, "password": None}).ttl == 30
    with pytest.raises(ConfigurationError, match="option 'ttl'"):
        configure({"url": "memory://", "ttl": "none"})


@given(st.text(max_size=40) | st.text("ported://@:/?#,[]%=&", max_size=20).map("ported://".__add__))
def test_any_text_gives_settings_or_a_configuration_error(text: str) -> None:
    try:
        settings = configure(text)
    except ConfigurationError:
        return
    assert settings.root in ("", "/" + settings.root.strip("/"))
    assert settings.ttl > 0


def test_an_unknown_option_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError) as caught:
        configure("ported://h?tll=5")
    message = str(caught.value)
    assert "'tll'" in message
    assert all(option.name in message for option in COMMON_OPTIONS)


# One root for programs that mean one

#: Each service, with a root that its URL names.
URLS = [
    "etcd://h:1/app",
    "zookeeper://h:1,g:1/app",
    "redis://h:1/app",
    "redlock://h:1,g:1,k:1/app",
    "local:///var/app",
    "memory://h/app",
]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    ("before", "behind"), [("", "\n"), ("", "\r\n"), (" ", "\t "), ("\ufeff", "")]
)
def test_white_space_around_a_value_does_not_count_wherever_it_comes_from(
    url: str, before: str, behind: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(value: str) -> str:
        return before + value + behind

    meant = configure(url)
    parts = {"backend": spoilt(meant.scheme), "root": spoilt(meant.root)}
    if meant.hosts:
        parts["hosts"] = spoilt(",".join(meant.hosts))

    def ways() -> Iterator[Settings]:
        yield configure(spoilt(url))
        yield configure({"url": spoilt(url)})
        yield configure(None, {"url": spoilt(url)})
        yield configure(parts)
        yield configure(url + quote(behind))
        (directory / "named.toml").write_text(f"url = {json.dumps(spoilt(url))}")
        monkeypatch.setenv("COORDLOCK_CONFIG", spoilt("named.toml"))
        yield configure()
        monkeypatch.setenv("COORDLOCK_URL", spoilt(url))
        yield configure()
        monkeypatch.setenv("SHOP_URL", spoilt(url))
        yield settings_from_env("SHOP_")

    assert [settings for settings in ways() if settings != meant] == []


def test_white_space_around_an_option_does_not_count() -> None:
    meant = configure("redis://u:p@h?sentinel=main&sentinel_password=s")
    for spoilt in ("main\n", " main", "main\r\n"):
        given = {"sentinel": spoilt, "username": "u\n", "password": "p\n", "ttl": " 15s\n"}
        found = configure("redis://h?sentinel_password=s%0A", given)
        assert (found, found.options) == (meant, meant.options)


def test_settings_made_by_hand_are_in_the_place_that_their_url_would_name() -> None:
    assert configure(Settings("ported", ("h",), "/app/")) == configure("ported://h/app")


@pytest.mark.parametrize("url", URLS)
def test_slashes_that_are_doubled_or_behind_a_root_do_not_count(url: str) -> None:
    for spelling in (f"{url}/", f"{url}//", url.replace("/app", "//app"), f"{url}?ttl=15s"):
        assert configure(spelling) == configure(url)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("etcd://h/a\np", "U\\+000A"),
        ("etcd://h/a\u200bpp", "U\\+200B"),
        ("etcd://h/app\udcff", "U\\+DCFF"),
        ("etcd://h/app%20/b", "no blanks around its parts"),
        ("etcd://h/a%00b", "invisible"),
        ("zookeeper://h1/app,h2/app", "as in zookeeper://host1,host2/root"),
        ("zookeeper://h1:1/app,h2:1/app", "as in zookeeper://host1,host2/root"),
        ("zookeeper://h1/app:2181", "as in zookeeper://host1,host2/root"),
        ({"backend": "zookeeper", "hosts": "h1/app,h2/app"}, "given once for all"),
        ({"backend": "zookeeper", "hosts": "h1", "root": "/app,h2:1/app"}, "looks like hosts"),
        ({"backend": "etcd", "hosts": "h", "root": "/a\u200bpp"}, "root contains .* U\\+200B"),
        ({"backend": "etcd", "hosts": "h", "root": "/app /"}, "no blanks around its parts"),
        ({"url": "redis://h", "sentinel": "ma\nin"}, "sentinel contains .* U\\+000A"),
        ({"backend": "etcd", "hosts": "h", "username": "a\tb"}, "username contains .* U\\+0009"),
        (Settings("etcd", ("h:1",), "/app\n"), "no blanks around its parts"),
    ],
    ids=ascii,
)
def test_what_could_be_read_as_another_root_is_refused(target: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        configure(target)


def test_a_root_may_have_any_visible_character_if_the_url_escapes_it() -> None:
    assert configure("etcd://h/a%2Cb/c%3A1/d%20e").root == "/a,b/c:1/d e"


def test_blanks_inside_need_no_escape_nor_does_a_comma_where_there_are_no_hosts() -> None:
    assert configure("local:///srv/my locks/a,b").root == "/srv/my locks/a,b"
    assert configure("etcd://h/app ?ttl= 15s") == configure("etcd://h/app?ttl=15s")
    assert configure("redis://h1, h2/my app") == configure("redis://h1,h2/my%20app")


@pytest.mark.parametrize("label", ["\U0001f469\u200d\U0001f4bb", "\u6771\u4eac\u3000\u4e00"])
def test_a_label_may_have_the_format_characters_of_its_script(label: str) -> None:
    assert configure({"url": "redis://h", "label": label}).label == label


# Options


@given(st.floats(max_value=0.999) | st.floats(min_value=3600.1) | st.just(math.nan))
def test_a_time_to_live_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match=r"'ttl'.*1s to 3600s"):
        configure("memory://", {"ttl": seconds})


def test_settings_are_taken_as_they_are_and_with_nothing_beside_them() -> None:
    settings = configure("memory://x?ttl=7")
    assert configure(settings) == settings
    with pytest.raises(ConfigurationError, match="replace"):
        configure(settings, {"ttl": 8})
    assert replace(settings, ttl=8.0).ttl == 8.0


# Passwords

#: With a beginning that stands nowhere else.
passwords = st.text(
    st.characters(min_codepoint=33, max_codepoint=126) | st.sampled_from("/@?#:%&=,[]é"),
    max_size=16,
).map("XQZ7".__add__)


def shown(target: Any) -> str:
    """All that anybody could see of a configuration, or of its error."""
    try:
        settings = configure(target)
    except ConfigurationError as error:
        chain: list[BaseException | None] = [error]
        while chain[-1] is not None and (chain[-1].__cause__ or not chain[-1].__suppress_context__):
            chain.append(chain[-1].__cause__ or chain[-1].__context__)
        return " ".join(f"{error} {error!r}" for error in chain)
    return f"{settings} {settings!r}"


@given(passwords)
def test_an_escaped_password_is_read_and_never_shown(password: str) -> None:
    url = f"ported://user:{quote(password, safe='')}@host/root"
    assert configure(url).password == password
    for target in (url, url + "?nonsense=1", url + "/..", url + "#x", url.replace("host", "h:x")):
        assert "XQZ7" not in shown(target)


#: Random letters between the characters that have a meaning in URLs.
secret = st.lists(
    st.sampled_from([*"/@?#:%&=,[]", "XQZ7", "WVK8", "JYU9"]), min_size=1, max_size=8
).map("".join)


@given(secret, st.sampled_from(["", "/root", "/root?ttl=5", "?ttl=x", ":x", "#f"]))
def test_no_part_of_a_password_is_ever_shown(password: str, rest: str) -> None:
    """Unescaped: it may be misread, but then it is refused without a word of it."""
    text = shown(f"ported://user:{password}@host{rest}")
    assert not [part for part in ("XQZ7", "WVK8", "JYU9") if part in text]


@pytest.mark.parametrize(
    "target",
    [
        "ported://user:XQZ7/root",
        "memory://user:XQZ7/root",
        {"backend": "ported", "hosts": ["user:XQZ7@h"]},
        {"backend": "ported", "hosts": "user:XQZ7@h"},
        {"backend": "ported", "username": "u", "password": "XQZ7", "ttl": 0},
        {"backend": "ported", "password": "XQZ7", "password_file": "XQZ7"},
        {"backend": "ported", "username": "u", "password": b"XQZ7"},
        {"url": "ported://h", "username": "u", "password": "XQZ7", "tll": 0},
        "ported://u:XQZ7@h?password=XQZ7",
        "ported://u:XQZ7@h?paswort=XQZ7",
    ],
    ids=str,
)
def test_a_misplaced_password_is_not_shown(target: Any) -> None:
    assert "XQZ7" not in shown(target)
