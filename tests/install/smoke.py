"""Checks one installation from inside; `scripts/install_matrix.py` runs it in many.

The environment holds coordlock and the extras that are named, nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.metadata
import importlib.util
import subprocess
import sys
import traceback
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import coordlock
from coordlock.fencing import Fence

PACKAGES = (
    "coordlock",
    "coordlock_etcd",
    "coordlock_local",
    "coordlock_memory",
    "coordlock_redis",
    "coordlock_zookeeper",
)
#: What each extra brings; without the extra it must be absent.
BROUGHT = {
    "zookeeper": "kazoo",
    "sasl": "puresasl",
    "etcd": "grpc",
    "etcd3": "etcd3",
    "cli": "argcomplete",
    "cron": "cronsim",
    "sql": "sqlalchemy",
    "redis": "redis",
    "prometheus": "prometheus_client",
    "otel": "opentelemetry",
    "testing": "pytest",
}
NAME = f"smoke-{uuid.uuid4().hex}"

Check = partial[None]


def importing_coordlock_imports_no_backend() -> None:
    heavy = ("kazoo", "grpc", "google.protobuf", "argcomplete", "sqlalchemy", "redis")
    code = f"import sys, coordlock; print([m for m in {heavy!r} if m in sys.modules])"
    assert run(sys.executable, "-I", "-c", code).stdout.strip() == "[]"


def the_version_is_the_distributions() -> None:
    assert coordlock.__version__ == importlib.metadata.version("coordlock")


def every_package_is_installed_and_typed_and_no_other() -> None:
    files = importlib.metadata.files("coordlock") or ()
    packages = {file.parts[0] for file in files if file.suffix == ".py"}
    assert packages == set(PACKAGES), packages
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None, package
        assert spec.origin is not None, package
        assert (Path(spec.origin).parent / "py.typed").exists(), package


def only_the_named_extras_are_installed(extras: set[str]) -> None:
    for extra, module in BROUGHT.items():
        assert (importlib.util.find_spec(module) is not None) == (extra in extras), extra


def a_lock_is_acquired_and_released(url: str) -> None:
    with coordlock.connect(url) as client:
        take(client)


def a_lock_is_acquired_and_released_in_asyncio(url: str) -> None:
    async def main() -> None:
        async with coordlock.connect_async(url) as client:
            async with client.lock(NAME, timeout=30) as grant:
                assert grant.token > 0
                assert await client.lock(NAME).try_acquire() is None
            assert await client.lock(NAME).try_acquire() is not None

    asyncio.run(main())


def an_existing_kazoo_client_is_used(url: str) -> None:
    from kazoo.client import KazooClient

    theirs = KazooClient(hosts=hosts(url))
    theirs.start()
    try:
        with coordlock.connect(client=theirs) as client:
            take(client)
        assert theirs.connected
    finally:
        theirs.stop()
        theirs.close()


def an_existing_etcd3_client_is_used(url: str) -> None:
    import etcd3

    host, port = hosts(url).split(":")
    theirs = etcd3.client(host=host, port=int(port))
    try:
        with coordlock.connect(client=theirs) as client:
            take(client)
        theirs.status()
    finally:
        theirs.close()


def a_missing_extra_is_named(scheme: str) -> None:
    try:
        coordlock.connect(f"{scheme}://127.0.0.1:1")
    except coordlock.errors.ConfigurationError as error:
        message = str(error)
    else:
        message = "nothing was raised"
    assert f"pip install 'coordlock[{scheme}]'" in message, message


def a_sql_fence_refuses_a_stale_token() -> None:
    import sqlalchemy

    from coordlock.fencing.sql import SQLFence, create_fence_table

    engine = sqlalchemy.create_engine("sqlite://")
    create_fence_table(engine)
    with engine.begin() as connection:
        refuse_the_older(SQLFence(connection))
    engine.dispose()


def a_redis_fence_refuses_a_stale_token(url: str) -> None:
    import redis

    from coordlock.fencing.redis import RedisFence

    with redis.Redis.from_url(url) as client:
        refuse_the_older(RedisFence(client))


def a_cron_line_names_its_times() -> None:
    three, noon = (datetime(2027, 1, 31, hour, tzinfo=UTC) for hour in (3, 12))
    assert coordlock.Cron("0 3 * * *", "UTC").before(noon) == three


def a_cron_line_names_its_missing_extra() -> None:
    try:
        coordlock.Cron("0 3 * * *")
    except coordlock.errors.ConfigurationError as error:
        message = str(error)
    else:
        message = "nothing was raised"
    assert "pip install 'coordlock[cron]'" in message, message


def the_suites_for_backends_are_imported() -> None:
    import coordlock.testing.lock_contract
    import coordlock.testing.proxy  # noqa: F401


def the_fences_that_need_no_extra_work() -> None:
    import coordlock.fencing.http  # noqa: F401
    from coordlock.fencing import MemoryFence
    from coordlock.fencing.files import FileFence

    refuse_the_older(MemoryFence())
    refuse_the_older(FileFence("fences"))


def a_missing_extra_of_a_fence_is_named(extra: str) -> None:
    try:
        importlib.import_module(f"coordlock.fencing.{extra}")
    except coordlock.errors.ConfigurationError as error:
        message = str(error)
    else:
        message = "nothing was raised"
    assert f"pip install 'coordlock[{extra}]'" in message, message


def refuse_the_older(fence: Fence) -> None:
    fence.check(NAME, 34)
    try:
        fence.check(NAME, 33)
    except coordlock.StaleToken as error:
        newest = error.newest
    else:
        newest = 0
    assert newest == 34, "the stale token was not refused"


def the_command_runs_a_command_under_a_lock() -> None:
    done = run(command(), "run", NAME, "--", "sh", "-c", 'test "$COORDLOCK_TOKEN" -gt 0; exit 7')
    assert done.returncode == 7, done
    assert run(command(), "--help").returncode == 0


def the_command_names_its_missing_extra() -> None:
    done = run(command(), "--completion", "bash")
    assert done.returncode != 0, done
    assert "pip install 'coordlock[cli]'" in done.stderr, done
    assert "Traceback" not in done.stderr, done


def take(client: coordlock.Client) -> None:
    """Acquire, be refused a second time, release; twice, with growing tokens."""
    grant = client.lock(NAME, timeout=30).acquire()
    assert client.lock(NAME).try_acquire() is None
    assert grant.release()
    with client.lock(NAME, timeout=30) as later:
        assert later.token > grant.token


def hosts(url: str) -> str:
    return url.split("//")[1].split("/")[0]


def command() -> str:
    return str(Path(sys.executable).parent / "coordlock")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def checks(extras: set[str], urls: dict[str, str]) -> Iterator[Check]:
    """Everything that an installation with ``extras`` must pass; a server's URL by its scheme."""
    yield partial(importing_coordlock_imports_no_backend)
    yield partial(the_version_is_the_distributions)
    yield partial(every_package_is_installed_and_typed_and_no_other)
    yield partial(only_the_named_extras_are_installed, extras)
    for scheme in ("memory", "local", "zookeeper", "etcd", "redis"):
        if scheme in BROUGHT and scheme not in extras:
            yield partial(a_missing_extra_is_named, scheme)
        else:
            url = urls.get(scheme, f"{scheme}://")
            if scheme == "redis":  # a fresh server counts as one that was restarted
                url = f"{scheme}://{hosts(url)}/smoke?restart_delay=0"
            yield partial(a_lock_is_acquired_and_released, url)
            yield partial(a_lock_is_acquired_and_released_in_asyncio, url)
    yield partial(the_fences_that_need_no_extra_work)
    for extra in ("sql", "redis"):
        if extra not in extras:
            yield partial(a_missing_extra_of_a_fence_is_named, extra)
    if "sql" in extras:
        yield partial(a_sql_fence_refuses_a_stale_token)
    if "redis" in extras:
        yield partial(a_redis_fence_refuses_a_stale_token, urls["redis"])
    if "zookeeper" in extras:
        yield partial(an_existing_kazoo_client_is_used, urls["zookeeper"])
    if "etcd3" in extras:
        yield partial(an_existing_etcd3_client_is_used, urls["etcd"])
    if "cron" in extras:
        yield partial(a_cron_line_names_its_times)
    else:
        yield partial(a_cron_line_names_its_missing_extra)
    if "testing" in extras:
        yield partial(the_suites_for_backends_are_imported)
    yield partial(the_command_runs_a_command_under_a_lock)
    if "cli" not in extras:
        yield partial(the_command_names_its_missing_extra)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extras", nargs="*", default=[], help="what is installed")
    parser.add_argument("--urls", nargs="*", default=[], help="running servers")
    given = parser.parse_args()
    failures = 0
    urls = {url.partition(":")[0]: url for url in given.urls}
    for check in checks(set(given.extras), urls):
        label = " ".join([check.func.__name__.replace("_", " "), *map(str, check.args)])
        try:
            check()
        except Exception:
            failures += 1
            traceback.print_exc()
            print(f"FAILED  {label}", flush=True)
        else:
            print(f"ok      {label}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
