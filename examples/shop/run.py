"""Run the shop on this machine, without containers, as two hosts would.

`python run.py redis`, `python run.py etcd`, or `python run.py URL` of a service that runs already.
Redis, the broker of Celery, must be installed. Ctrl-C ends everything.
"""

import argparse
import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).parent

#: What each host runs; the same as in compose.yaml.
PROCESSES = {
    "web": "gunicorn shop.wsgi --threads 8 --bind 127.0.0.1:{port}",
    "worker": "celery -A shop worker --concurrency 2 --loglevel INFO --hostname {name}",
    "beat": "celery -A shop beat --scheduler coordlock.integrations.celery:Scheduler"
    " --loglevel INFO --pidfile= --schedule {directory}/{name}",
    "courier": "python manage.py courier",
    "cron": 'sh -c "while ./report.sh; do sleep 60; done"',
}
MIGRATE = "python manage.py locked --timeout 5m migrate migrate --noinput"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start(name, command, environment=None):
    """Start a process, whose lines are printed after its name, in a group of its own."""
    process = subprocess.Popen(
        shlex.split(command),
        cwd=HERE,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C is for this program
    )

    def show():
        for line in process.stdout:
            print(f"{name:9} | {line}", end="", flush=True)
        print(f"{name:9} | ended with status {process.wait()}", flush=True)

    threading.Thread(target=show, daemon=True).start()
    return process


def stop(processes):
    """End processes in order, and what is left of them after ten seconds by force."""
    for process in processes:
        process.terminate()
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("locks", help="redis, etcd, or the URL of a service")
    parser.add_argument("--port", type=int, default=8000, help="of the first web server")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="shop-"))
        run(stack, directory, options)


def run(stack, directory, options):
    def serve(name, command):
        stack.callback(stop, [start(name, command)])

    redis = f"127.0.0.1:{free_port()}"
    serve("redis", f"redis-server --port {redis.split(':')[1]} --save '' --dir {directory}")
    url = options.locks
    if url == "redis":
        # This server is new: no client of an earlier one needs to be waited for.
        url = f"redis://{redis}/shop?ttl=5s&restart_delay=0"
    elif url == "etcd":
        etcd, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        serve(
            "etcd",
            f"etcd --data-dir {directory}/etcd --log-level warn"
            f" --listen-client-urls {etcd} --advertise-client-urls {etcd}"
            f" --listen-peer-urls {peers} --initial-advertise-peer-urls {peers}"
            f" --initial-cluster default={peers}",
        )
        url = f"{etcd.replace('http', 'etcd')}/shop?ttl=5s"

    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COORDLOCK_URL": url,
        "BROKER_URL": f"redis://{redis}/0",
        "SHOP_DATABASE": f"{directory}/shop.sqlite3",
    }
    hosts = (1, 2)
    migrations = [start(f"migrate-{host}", MIGRATE, environment) for host in hosts]
    stack.callback(stop, migrations)
    if any(process.wait() for process in migrations):
        sys.exit("the migration failed")

    processes = []
    stack.callback(stop, processes)
    for host in hosts:
        for what, command in PROCESSES.items():
            name = f"{what}-{host}"
            port = options.port + host - 1
            line = command.format(name=name, port=port, directory=directory)
            processes.append(start(name, line, environment))
    print(f"shop: http://127.0.0.1:{options.port} and :{options.port + 1}")
    print(f"shop: export COORDLOCK_URL='{url}'", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
