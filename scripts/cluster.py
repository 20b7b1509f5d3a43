"""Runs three etcd and three ZooKeeper nodes on this machine until Ctrl-C.

Prints their URLs, and each node's address and process, which can be paused or killed as a trial.
Their data is gone at the end. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NoReturn

from testbed.servers.etcd import EtcdCluster, etcd_is_installed
from testbed.servers.zookeeper import ZooKeeperEnsemble, zookeeper_is_installed

Cluster = EtcdCluster | ZooKeeperEnsemble

CLUSTERS: Final[Mapping[str, Callable[[Path], Cluster]]] = {
    "etcd": EtcdCluster,
    "zookeeper": ZooKeeperEnsemble,
}
IS_INSTALLED: Final = {"etcd": etcd_is_installed, "zookeeper": zookeeper_is_installed}
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def say(words: str) -> None:
    print(f"cluster: {words}", file=sys.stderr, flush=True)


def interrupt(*_: object) -> NoReturn:
    """End once: a second signal must not cut short what the first one began."""
    for one in SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt


def describe(cluster: Cluster) -> dict[str, object]:
    members = [
        {
            "address": member.endpoint.hosts[0],
            "pid": member.pid,
            "leads": member.leads(),
            "log": str(member.log),
        }
        for member in cluster.members
    ]
    return {"url": cluster.url, "members": members}


def in_words(name: str, cluster: Cluster) -> str:
    lines = [f"{name:10} {cluster.url}"]
    for member in cluster.members:
        leads = ", the leader" if member.leads() else ""
        lines.append(f"{'':10} {member.endpoint.hosts[0]}: process {member.pid}{leads}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="cluster", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead")
    parser.add_argument("services", nargs="*", metavar="SERVICE", help="etcd or zookeeper alone")
    given = parser.parse_args()
    if unknown := set(given.services) - set(CLUSTERS):
        parser.error(f"no such service: {', '.join(sorted(unknown))}")
    names = [name for name in CLUSTERS if not given.services or name in given.services]
    if missing := [name for name in names if not IS_INSTALLED[name]()]:
        say(f"not installed: {', '.join(missing)}; on Debian, `make servers` does it")
        return 1
    for one in SIGNALS:
        signal.signal(one, interrupt)
    try:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coordlock-")))
            running = {name: CLUSTERS[name](directory / name) for name in names}
            for name, cluster in running.items():
                say(f"starting three nodes of {name}")
                stack.enter_context(cluster)
            if given.json:
                print(json.dumps({name: describe(running[name]) for name in names}), flush=True)
            else:
                print("\n".join(in_words(name, running[name]) for name in names), flush=True)
            say("running until Ctrl-C")
            while True:
                signal.pause()
    except KeyboardInterrupt:
        say("ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
