"""A Prometheus that scrapes what a test names, and the tool that tests its rules."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.servers.ports import free_port
from testbed.servers.process import ServerProcess

__all__ = ["PrometheusServer", "prometheus_is_installed", "promtool"]


def prometheus_is_installed() -> bool:
    """Whether the server and its tool are on the path."""
    return shutil.which("prometheus") is not None and shutil.which("promtool") is not None


def promtool(*arguments: str | Path) -> str:
    """The output of ``promtool ARGUMENTS``; AssertionError, with the output, if it fails."""
    done = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class PrometheusServer(ServerProcess):
    """A Prometheus that scrapes ``targets``, each host and port, every half second."""

    def __init__(self, directory: Path, targets: Sequence[str], rules: Path) -> None:
        self._targets = targets
        self._rules = rules
        super().__init__(directory)

    def choose_ports(self) -> None:
        self.port = free_port()

    def command(self) -> list[str]:
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(self._rules)],
            "scrape_configs": [
                {"job_name": "coordlock", "static_configs": [{"targets": list(self._targets)}]}
            ],
        }
        path = self.directory / "prometheus.yml"
        path.write_text(json.dumps(config))  # which is YAML, too
        return [
            "prometheus",
            f"--config.file={path}",
            f"--storage.tsdb.path={self.data}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=1):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that ``expression`` gives now."""
        query = urllib.parse.urlencode({"query": expression})
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{query}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result
