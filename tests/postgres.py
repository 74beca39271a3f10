"""A PostgreSQL server of the tests' own, from the binaries of this machine, which ends with the tests' process."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from tests.variants import variants
from tests.waiting import wait_for
from txtopo.servers.server import Server, free_port

ABSENT = "PostgreSQL's server is not installed: apt install postgresql"


SHOWN = [
    "extra_float_digits=0",
    "DateStyle=German",
    "IntervalStyle=sql_standard",
    "bytea_output=escape",
    "array_nulls=off",
    "standard_conforming_strings=off",
    "quote_all_identifiers=on",
]
"""Settings by which a server shows or takes values otherwise."""


def with_setting(url: str, setting: str) -> str:
    """Return the URL of a server that has a setting by default."""
    return f"{url}?options=-c%20{setting.replace('=', '%3D')}"


_SCHEMAS = itertools.count(1)


def binaries() -> Path | None:
    """Return the folder with initdb and postgres, of the newest version that is installed; None if none is."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    return max(
        (path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")),
        key=lambda each: int(each.parent.name),
        default=None,
    )


class PostgresServer(Server):
    """A server with an empty database, which can be killed, stopped and started again.

    It does not run as root, so a process of root's gives it to another user.

    Args:
        settings: of ``postgresql.conf``.
    """

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        found = binaries()
        if found is None:
            pytest.skip(ABSENT)
        self._binaries = found
        self._settings = settings or {}
        self.port = free_port()
        self.url = f"postgresql://tests@127.0.0.1:{self.port}/postgres"
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._user = "nobody" if os.getuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it serves requests."""
        if not self._data.exists():
            if self._user is not None:
                os.chown(self._folder, pwd.getpwnam(self._user).pw_uid, -1)
            self._run("initdb", "-D", self._data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", **self._settings}
        words = [f"-c{name}={value}" for name, value in options.items()]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=self._user, cwd="/", start_new_session=True,
            )  # fmt: skip
        # The pipe closes when this process ends, even by SIGKILL; then the guard ends the server.
        end = ["/bin/sh", "-c", f"cat >/dev/null; kill -QUIT {self._process.pid}"]
        self._guard = subprocess.Popen(end, stdin=subprocess.PIPE, start_new_session=True)
        wait_for("PostgreSQL serves", self._serves)

    def standby(self) -> PostgresServer:
        """Return a server, not started yet, that will follow this one from where it then is."""
        return _Standby(self)

    def promote(self) -> None:
        """Let a standby become a server of its own."""
        self._run("pg_ctl", "promote", "-w", "-D", self._data)

    def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
        ready = [self._binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def kill(self) -> None:
        """Kill it and its children, as a power failure does that keeps what was synced."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if self._process is not None:
            self._process.send_signal(3)  # an immediate shutdown: the children end with it, nothing is written
            self._process.wait()
            self._process = None

    def _run(self, name: str, *arguments: object) -> None:
        words = [str(self._binaries / name), *map(str, arguments)]
        subprocess.run(words, check=True, user=self._user, cwd="/", stdin=subprocess.DEVNULL, capture_output=True)


class _Standby(PostgresServer):
    """A server that follows another one."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__({"hot_standby": "on"})
        self._primary = primary

    def __enter__(self) -> Self:
        return self

    def start(self) -> None:
        """Copy the other one, if that was not done yet, and follow it."""
        if not self._data.exists():
            if self._user is not None:
                os.chown(self._folder, pwd.getpwnam(self._user).pw_uid, -1)
            self._run("pg_basebackup", "-D", self._data, "-d", self._primary.url, "-R", "-X", "stream", "-c", "fast")
        super().start()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests that leave it as it is."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def schema(postgres: PostgresServer) -> str:
    """A schema of the test's own."""
    import sqlalchemy as sa

    name = f"test {next(_SCHEMAS)}"
    engine = sa.create_engine(postgres.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.exec_driver_sql(f'CREATE SCHEMA "{name}"')
    engine.dispose()
    return name


@pytest.fixture(params=variants("sqlite", slow=["postgresql"]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str | None]:
    """The URL of an empty database, and the schema to use in it: of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rows.db'}", None
    return request.getfixturevalue("postgres").url, request.getfixturevalue("schema")


class Client:
    """A connection that runs statements in a schema, each alone or several in a transaction; of SQLite, too."""

    def __init__(self, url: str, schema: str | None) -> None:
        import sqlalchemy as sa

        self.url = url
        self.schema = schema
        self.is_open = False
        self._engine = sa.create_engine(
            url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool
        )
        self._connection = self._engine.connect()
        if schema is not None:
            self.run(f'SET search_path TO "{schema}"')

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def other(self) -> Client:
        """Return another connection to the same schema."""
        return Client(self.url, self.schema)

    def run(self, statement: str) -> None:
        """Run a statement."""
        self._connection.exec_driver_sql(statement)

    def rows(self, statement: str) -> list[Any]:
        """Return the rows of a query."""
        return self._connection.exec_driver_sql(statement).fetchall()

    def begin(self) -> None:
        """Begin a transaction, unless one is open."""
        if not self.is_open:
            self.run("BEGIN")
        self.is_open = True

    def commit(self) -> None:
        """End the transaction, if one is open."""
        self._end("COMMIT")

    def roll_back(self) -> None:
        """Undo the transaction, if one is open."""
        self._end("ROLLBACK")

    def close(self) -> None:
        """Close the connection, which undoes a transaction that is open."""
        self._connection.close()

    def _end(self, statement: str) -> None:
        if self.is_open:
            self.run(statement)
        self.is_open = False
