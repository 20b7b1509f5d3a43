"""Read, add one, write back, under a lock: what is lost if the lock ends before the commit.

A trigger of the database holds each commit until no request can go on by itself: all of them wait
for the lock, or in the database. So the interleaving that loses updates is no matter of luck.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.orm import Session

import coordlock
from coordlock.fencing.sql import create_fence_table
from coordlock.testing.waiting import eventually
from testbed.servers.postgres import Postgres
from tests.docs.pages import blocks
from tests.frameworks.serving import url_of

DJANGO_PAGE = "docs/integrations/django.md"
FASTAPI = "docs/integrations/fastapi.md"
BOUND = 120.0
REQUESTS = 4

#: Sends one deposit, and waits for the answer.
Send = Callable[[], object]
Serve = Callable[..., Send]

SCHEMA = """
CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL);
INSERT INTO account VALUES ('alice', 0);
CREATE FUNCTION hold_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(TG_RELID::bigint);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER hold_commit AFTER UPDATE ON account
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold_commit()
"""


class Bank:
    """One account in PostgreSQL, whose commits can be held, and the lock of its name."""

    def __init__(self, engine: Engine, locks: coordlock.Client) -> None:
        self.engine = engine
        self.locks = locks

    def lock(self) -> coordlock.Lock:
        return self.locks.lock("account/alice", timeout=BOUND)

    def balance_after(self, send: Send) -> int:
        """The balance after ``REQUESTS`` deposits that are sent at once."""
        with ThreadPoolExecutor(REQUESTS) as pool, self._commits_held():
            answers = [pool.submit(send) for _ in range(REQUESTS)]
            eventually(lambda: self._waiting() == REQUESTS, within=BOUND)
        for answer in answers:
            answer.result(BOUND)
        # A session may end after the response was sent.
        eventually(lambda: self._count("state <> 'idle'") == 0)
        with self.engine.connect() as connection:
            balance: int = connection.execute(text("SELECT balance FROM account")).scalar_one()
        return balance

    @contextmanager
    def _commits_held(self) -> Iterator[None]:
        with self.engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock('account'::regclass::bigint)"))
            yield

    def _waiting(self) -> int:
        """How many requests wait: in the database, at a commit too, or for the lock."""
        # In this order: who releases before the commit is counted at the commit alone.
        in_database = self._count("wait_event_type = 'Lock'")
        queue = self.locks.admin.contenders("account/alice")
        return in_database + sum(not contender.holding for contender in queue)

    def _count(self, condition: str) -> int:
        """How many connections of the requests are in this state."""
        query = (
            f"SELECT count(*) FROM pg_stat_activity WHERE application_name = :name AND {condition}"
        )
        with self.engine.connect() as connection:
            count: int = connection.execute(text(query), {"name": self.name}).scalar_one()
        return count

    @property
    def name(self) -> str:
        """What the requests' connections are known by."""
        return str(self.engine.url.query["options"])

    @property
    def requests_url(self) -> URL:
        """Where the requests connect."""
        return self.engine.url.update_query_dict({"application_name": self.name})


@pytest.fixture(params=["local"])
def locks_url(request: pytest.FixtureRequest, tmp_path: Path, root: str) -> str:
    if request.param == "local":
        return f"local://{tmp_path}/locks?request_timeout=30s"
    postgresql: Postgres = request.getfixturevalue("postgresql")
    return postgresql.url_for(root)


IN_POSTGRESQL = pytest.mark.parametrize("locks_url", ["postgresql"], indirect=True)


@pytest.fixture
def bank(postgres: Postgres, locks_url: str) -> Iterator[Bank]:
    with postgres.schema() as url, coordlock.connect(locks_url) as locks:
        engine = create_engine(url)
        try:
            with engine.begin() as connection:
                connection.exec_driver_sql(SCHEMA)
            yield Bank(engine, locks)
        finally:
            engine.dispose()


@pytest.fixture
def serve(bank: Bank, locks_url: str, tmp_path: Path) -> Iterator[Serve]:
    """Starts a server in ``tmp_path``; what sends it a deposit."""
    environment = {
        **os.environ,
        "COORDLOCK_URL": locks_url,
        "DATABASE_URL": bank.requests_url.render_as_string(hide_password=False),
    }
    with ExitStack() as stack, httpx.Client(timeout=BOUND) as http:

        def run(*command: str) -> Send:
            path = tmp_path / "output"
            line = [sys.executable, "-m", *command]
            output = stack.enter_context(open(path, "wb"))
            process = subprocess.Popen(
                line, cwd=tmp_path, env=environment, stdout=output, stderr=output
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)

            url = url_of(process, path)

            def send() -> None:
                answer = http.post(f"{url}/alice")
                assert answer.status_code == 200, path.read_text()

            return send

        yield run


@IN_POSTGRESQL
@pytest.mark.parametrize("has_guard", [False, True])
def test_a_commit_after_the_block_loses_updates_unless_its_transaction_releases_the_lock(
    bank: Bank, has_guard: bool
) -> None:
    engine = create_engine(bank.requests_url)

    def deposit() -> None:
        with Session(engine) as session:
            with bank.lock() as grant:
                if has_guard:
                    grant.release_with(session)
                balance = session.scalar(text("SELECT balance FROM account"))
                session.execute(text("UPDATE account SET balance = :new"), {"new": balance + 1})
            session.commit()

    balance = bank.balance_after(deposit)
    engine.dispose()
    assert (balance == REQUESTS) == has_guard


def of_the_page(file: str, page: str) -> str:
    """The page's block of this name."""
    [block] = [block for block in blocks(page) if block.file == file]
    return block.text


DJANGO = {
    "__init__": "",
    "settings": """
import os
from sqlalchemy import make_url

url = make_url(os.environ["DATABASE_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "ATOMIC_REQUESTS": True,
        "NAME": url.database,
        "USER": url.username,
        "PASSWORD": url.password,
        "HOST": url.host,
        "PORT": url.port,
        "OPTIONS": dict(url.query),
    }
}
ALLOWED_HOSTS = ["*"]
DEBUG_PROPAGATE_EXCEPTIONS = True
INSTALLED_APPS = ["coordlock.integrations.django", "bank"]
COORDLOCK = {"url": os.environ["COORDLOCK_URL"], "timeout": 30}
ROOT_URLCONF = "bank.urls"
SECRET_KEY = "of the tests"
""",
    "models": """
from django.db import models

class Account(models.Model):
    name = models.TextField(primary_key=True)
    balance = models.IntegerField()

    class Meta:
        db_table = "account"
""",
    "urls": """
from django.urls import path
from bank import views

urlpatterns = [path("<name>", views.deposit)]
""",
}


@pytest.mark.parametrize("locks_url", ["local", "postgresql"], indirect=True)
def test_django_loses_nothing_with_the_view_of_the_page(
    bank: Bank, serve: Serve, tmp_path: Path
) -> None:
    create_fence_table(bank.engine)
    package = tmp_path / "bank"
    package.mkdir()
    for name, source in {**DJANGO, "views": of_the_page("views.py", DJANGO_PAGE)}.items():
        (package / f"{name}.py").write_text(source)
    options = ("--workers", "2", "--threads", str(REQUESTS), "--bind", "127.0.0.1:0")
    environment = ("--env", "DJANGO_SETTINGS_MODULE=bank.settings")
    assert (
        bank.balance_after(
            serve("gunicorn", *options, *environment, "django.core.wsgi:get_wsgi_application()")
        )
        == REQUESTS
    )


SESSION = "session: Session"
GRANT = "grant: AccountLock"


@pytest.mark.parametrize(
    ("order", "scope"), [((SESSION, GRANT), "request"), ((GRANT, SESSION), "function")]
)
def test_fastapi_loses_nothing_whatever_the_order_and_the_scope_of_the_session(
    bank: Bank, serve: Serve, tmp_path: Path, order: tuple[str, str], scope: str
) -> None:
    service = of_the_page("service.py", FASTAPI)
    scoped = f"Depends(begin, scope={scope!r})"
    for old, new in ((f"{SESSION}, {GRANT}", ", ".join(order)), ("Depends(begin)", scoped)):
        assert old in service
        service = service.replace(old, new)
    (tmp_path / "service.py").write_text(service)
    assert bank.balance_after(serve("uvicorn", "--port", "0", "service:app")) == REQUESTS
