"""How a URL, a mapping or what `coordlock.settings.sources` finds becomes `Settings`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from coordlock.backend import Backend
from coordlock.backend.registry import backend_for_scheme
from coordlock.errors import ConfigurationError
from coordlock.settings import (
    COMMON_OPTIONS,
    REACH_OPTION,
    REACHES,
    Reach,
    Settings,
    hidden_in,
    trimmed,
)
from coordlock.settings.sources import DEFAULT_ORIGIN, find, read_secret, variable

__all__ = ["NOT_CONFIGURED", "Target", "configure", "settings_from_env", "warn_unless_chosen"]

#: The warning about a configuration whose origin is the default.
NOT_CONFIGURED: Final = (
    "no configuration was found, so locks cover this machine only: "
    "set COORDLOCK_URL to a service, or to local:// if that is meant"
)


#: What `connect` takes.
Target = str | Mapping[str, Any] | Settings | None

#: The keys of a mapping that have a part of the URL of their own.
_IN_URL: Final = ("url", "backend", "hosts", "root", "username", "password")
#: Of these, the ones that name the backend.
_CHOICE: Final = ("url", "backend")
#: For each reach that can be required, a service that has it.
_EXAMPLES: Final[dict[Reach, str]] = {
    "machine": "local://",
    "cluster": "etcd://host1:2379,host2:2379",
}


def configure(target: Target = None, options: Mapping[str, object] | None = None) -> Settings:
    """The settings for a URL, a mapping or what `find` finds; ``options`` replace what is there.

    Raises `ConfigurationError` that names the offending part and what is accepted. It does so, too,
    for a backend that reaches less far than the settings, or ``COORDLOCK_REACH``, ask for.
    """
    if not isinstance(target, Settings):
        settings = _settings(target, dict(options or {}))
    elif options:
        raise ConfigurationError("Settings take no further options: use dataclasses.replace")
    else:
        port = backend_for_scheme(target.scheme).default_port
        root, hosts = _root(target.root or None, ""), _hosts(target.hosts, port)
        settings = replace(target, root=root, hosts=hosts)
    _check_reach(settings)
    return settings


def settings_from_env(prefix: str) -> Settings:
    """The settings that an application's own variables give, such as ``MYAPP_LOCK_URL``.

    ``prefix`` and the name of an option in capitals make a variable: for ``MYAPP_LOCK_`` also
    ``MYAPP_LOCK_TTL`` and ``MYAPP_LOCK_PASSWORD_FILE``. Raises `ConfigurationError` for a variable
    with the prefix that is no option, is empty or cannot be used, and where none names a backend.
    """
    given_prefix: object = prefix
    if not isinstance(given_prefix, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", prefix):
        raise ConfigurationError("prefix must be the beginning of variables, such as MYAPP_LOCK_")
    if prefix.startswith("COORDLOCK_") or "COORDLOCK_".startswith(prefix):
        raise ConfigurationError(
            f"prefix {prefix!r} also matches variables of coordlock itself: use one of your own"
        )
    variables = [name for name in os.environ if name.startswith(prefix)]
    # Of one in small letters this makes no option.
    names = {name.removeprefix(prefix).swapcase(): name for name in variables}
    given = {key: variable(name) for key, name in names.items()}
    choice = [key for key in _CHOICE if key in given]
    if not choice:
        raise ConfigurationError(f"neither {prefix}URL nor {prefix}BACKEND is set")
    try:
        settings = _from_mapping(given, names)
    except ConfigurationError as error:
        raise ConfigurationError(f"variables {prefix}*: {error.problem}") from None
    return replace(settings, origin=prefix + choice[0].upper())


def warn_unless_chosen(settings: Settings, warn: Callable[[str], object]) -> None:
    """Call ``warn`` with a text if nothing is configured and stderr is no terminal.

    A cron job or a service that misses its configuration would seem to work, and lock one machine
    only. A person at a terminal has most likely configured nothing yet.
    """
    if settings.origin == DEFAULT_ORIGIN and not os.isatty(2):
        warn(NOT_CONFIGURED)


def _settings(target: object, given: dict[str, object]) -> Settings:
    if target is None and any(key in given for key in _CHOICE):
        target = {}  # the caller names the service, so no other source of settings counts
    source, origin = find() if target is None else (target, "")
    found: dict[str, Any] = {"url": source} if isinstance(source, str) else _table(source, origin)
    given = {key: _plain(value) for key, value in given.items()}
    if origin == DEFAULT_ORIGIN:
        for key in ("hosts", "username", "password", "password_file"):
            if key in given:
                raise ConfigurationError(f"{key} is given, but no service: give 'url' or 'backend'")
    # A password that is given here replaces one of there, whichever way each of them is written.
    for one, other in (("password", "password_file"), ("password_file", "password")):
        if one in given and other not in given:
            found.pop(other, None)
    try:
        settings = _from_mapping(found | given, {})
    except ConfigurationError as error:
        if origin in ("", DEFAULT_ORIGIN):
            raise
        raise ConfigurationError(f"{error.problem} (configured by {origin})") from None
    return replace(settings, origin=origin)


def _check_reach(settings: Settings) -> None:
    """Raise `ConfigurationError` for a backend that reaches less far than is asked for."""
    wanted, by = settings.reach, "the option 'reach'"
    if (value := variable("COORDLOCK_REACH")) is not None:
        try:
            demanded: Reach = REACH_OPTION.read(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"COORDLOCK_REACH, as {error.problem}") from None
        if REACHES.index(demanded) > REACHES.index(wanted):
            wanted, by = demanded, "COORDLOCK_REACH"
    if wanted == "process":
        return
    reach = backend_for_scheme(settings.scheme).capabilities.reach
    if REACHES.index(reach) < REACHES.index(wanted):
        origin = f"from {settings.origin}" if settings.origin else "as given"
        if settings.origin == DEFAULT_ORIGIN:
            origin = "the default, because no configuration was found"
        raise ConfigurationError(
            f"{by} requires locks that reach the whole {wanted}, but those of "
            f"{settings.scheme}:// ({origin}) reach only one {reach}: "
            f"configure another service, such as COORDLOCK_URL={_EXAMPLES[wanted]}"
        )


def _table(value: object, origin: str) -> dict[str, Any]:
    """The keys and values of a mapping, without those of None."""
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"{origin or 'target'}: a URL, a mapping or Settings are needed, "
            f"not {type(value).__name__}; an existing client of a service is given as client="
        )
    return {str(key): _plain(given) for key, given in value.items() if given is not None}


def _plain(value: object) -> object:
    """``value`` as a parser takes it: what pydantic, pathlib and enum wrap is unwrapped."""
    kind = type(value)
    if hasattr(kind, "get_secret_value"):
        return _plain(value.get_secret_value())  # type: ignore[attr-defined]  # pydantic's
    if hasattr(kind, "unicode_string"):
        return str(value)  # pydantic's URLs
    if isinstance(value, Enum):
        return value.value
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _from_mapping(fields: Mapping[str, Any], names: Mapping[str, str]) -> Settings:
    """The settings of ``fields``; ``names`` are those of their variables, for errors."""
    merged: dict[str, Any] = dict(_parse_url(fields["url"])) if "url" in fields else {}
    meant = merged.get("backend")
    merged.update((key, value) for key, value in fields.items() if key != "url")
    scheme = _text_of("backend", merged.pop("backend", None))
    if not isinstance(scheme, str) or not scheme:
        given = ", ".join(sorted(fields)) or "nothing"
        if any(isinstance(value, Mapping) for value in fields.values()):
            given += ": give the options themselves, and no table around them"
        raise ConfigurationError(f"neither 'url' nor 'backend' is given, but {given}")
    if meant not in (None, scheme):
        raise ConfigurationError(
            f"'url' names {meant}://, and 'backend' names {scheme!r}: give one of them"
        )
    backend = backend_for_scheme(scheme)
    secrets = {"password", *(option.name for option in backend.options if option.secret)}
    merged = {
        name: _text_of(name, value, is_secret=name in secrets) for name, value in merged.items()
    }
    for name in secrets:
        if (file := merged.pop(f"{name}_file", None)) is not None:
            if merged.get(name) is not None:
                raise ConfigurationError(f"both {name} and {name}_file are given: give one of them")
            merged[name] = read_secret(f"{name}_file", file)
    hosts, root = merged.pop("hosts", ()), merged.pop("root", None)
    username, password = merged.pop("username", None), merged.pop("password", None)
    for key, value in (("username", username), ("password", password)):
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f"{key} must be a text")
    if password is not None and username is None:
        username = ""  # as in scheme://:password@host; the backend knows whether it needs a user
    common, own = _options(backend, merged, names)
    return Settings(
        scheme=scheme,
        hosts=_hosts(hosts, backend.default_port),
        root=_root(root, backend.default_root),
        username=username,
        password=password,
        options=own,
        **common,
    )


def _text_of(name: str, value: object, *, is_secret: bool = False) -> object:
    """``value``, where it is a text: without what surrounds it by accident, and all of it visible.

    Two programs with one configuration must not get two roots because a file ended in a newline.
    """
    if not isinstance(value, str):
        return value
    text = trimmed(value, is_secret=is_secret)
    is_free = (
        is_secret or name == "label"
    )  # emoji and some scripts join letters by format characters
    if not is_free and (character := hidden_in(text)):
        raise ConfigurationError(f"{name} contains the invisible character {character}: remove it")
    return text


def _parse_url(url: object) -> dict[str, Any]:
    # By hand, because urllib knows neither several hosts nor unknown schemes, and shows passwords.
    example = "such as etcd://host1:2379,host2:2379/payments?ttl=15s"
    if not isinstance(url, str) or "://" not in url:
        raise ConfigurationError(f"a URL is needed, with its scheme, {example}")
    url = trimmed(url)
    if character := hidden_in(url):
        raise ConfigurationError(f"the URL contains the invisible character {character}: remove it")
    scheme, _, rest = url.partition("://")
    if "#" in rest:
        raise ConfigurationError("the URL has a '#': write it as %23")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    found = {"backend": scheme.lower()} | _parse_authority(authority, behind=path + query)
    if authority and ("," in path or re.search(r":\d", path)):
        raise ConfigurationError(
            "the URL's root looks like hosts: write all hosts before the root, as in "
            f"{scheme.lower()}://host1,host2/root; in a root write , as %2C and : as %3A"
        )
    if slash:
        found["root"] = "/" + unquote(path)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ConfigurationError(f"the URL's options are not name=value pairs, {example}") from None
    for name, value in pairs:
        if name in found or name in _IN_URL:
            raise ConfigurationError(
                f"option {name!r} is given twice, or is another part of the URL"
            )
        found[name] = value
    return found


def _parse_authority(authority: str, behind: str) -> dict[str, Any]:
    credentials, at, hosts = authority.rpartition("@")
    if "@" in behind:
        # Else a password with a slash in it would be shown as a host or a port that is none.
        raise ConfigurationError(
            "the URL has an '@' behind its host: write / as %2F, ? as %3F and @ as %40"
        )
    found: dict[str, Any] = {"hosts": [unquote(host) for host in hosts.split(",")]} if hosts else {}
    if at:
        username, colon, password = credentials.partition(":")
        found["username"] = unquote(username)
        if colon:
            found["password"] = unquote(password)
    return found


def _hosts(value: object, port: int) -> tuple[str, ...]:
    hosts = value.split(",") if isinstance(value, str) else value
    if not isinstance(hosts, list | tuple):
        raise ConfigurationError("hosts must be a list of host:port")
    return tuple(_host(host, port) for host in hosts)


def _host(value: object, port: int) -> str:
    host = trimmed(value) if isinstance(value, str) else ""
    if "@" in host:
        raise ConfigurationError(
            "a host contains credentials: use the options username and password"
        )
    name, colon, number = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not colon:
        name, number = host, str(port)
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    if not bare or (":" in bare and bare == name) or re.search(r"[][/\s]", bare) or hidden_in(bare):
        raise ConfigurationError(
            "each host must be host, host:port or [IPv6 address]:port, "
            "without the root, which is given once for all"
        )
    # What stands for the port is not shown: in a URL without a host it is a password.
    if not port:
        if colon:
            raise ConfigurationError(f"host {name!r}: this backend's hosts have no port")
        return name
    if not (re.fullmatch(r"[1-9]\d{0,4}", number, re.ASCII) and int(number) < 65536):
        raise ConfigurationError(f"host {name!r}: the port must be a number from 1 to 65535")
    return f"{name}:{int(number)}"


def _root(value: object, default: str) -> str:
    if value is None:
        return default
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise ConfigurationError(f"root must be a path that starts with a slash, not {value!r}")
    parts = [part for part in value.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise ConfigurationError(f"root must not contain '.' or '..', as {value!r} does")
    if any(part != trimmed(part) or hidden_in(part) for part in parts):
        raise ConfigurationError(
            f"root must have no blanks around its parts and no invisible characters: {value!r}"
        )
    if re.search(r",[^/,]*:\d", value):
        raise ConfigurationError(f"root {value!r} looks like hosts: give those as hosts")
    return "/" + "/".join(parts)


def _options(
    backend: type[Backend], given: Mapping[str, object], names: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    known = {option.name: option for option in (*COMMON_OPTIONS, *backend.options)}
    for name in given:
        if name not in known:
            raise ConfigurationError(
                f"{backend.scheme}:// has no option {names.get(name, repr(name))}; "
                f"it has: {', '.join(sorted(known))}"
            )
    values = {
        name: option.read(given[name]) if name in given else option.default
        for name, option in known.items()
    }
    common = {option.name: values.pop(option.name) for option in COMMON_OPTIONS}
    return common, values
