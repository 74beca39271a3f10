"""PostgreSQL that fails over to a standby, and a network that loses the answer of a commit."""

import contextlib
import socket
import threading

import pytest
import sqlalchemy as sa

from tests.postgres import PostgresServer
from tests.state.sql.test_exactly_once import CONFIG_THERE, Pipeline
from tests.waiting import wait_for
from txtopo.errors import StateFailure, StopError
from txtopo.failpoints import armed
from txtopo.testing.inline import run_inline


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run_on(url, statement):
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        return connection.exec_driver_sql(statement).scalar()


@pytest.mark.slow
def test_a_server_that_fails_over_to_its_standby():
    """With a synchronous standby each group is there once; the URL names both servers, and the run goes on by itself."""
    with (
        PostgresServer({"synchronous_standby_names": "*", "synchronous_commit": "local"}) as primary,
        primary.standby() as standby,
    ):
        standby.start()
        wait_for(
            "the standby is synchronous",
            lambda: run_on(primary.url, "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"),
        )
        hosts = "&".join(f"host=127.0.0.1:{each.port}" for each in (primary, standby))
        # What a session waits for is said in the URL: the standby, by which an acknowledged group is on both.
        options = "options=-csynchronous_commit%3Don"
        url = f"postgresql://tests@/postgres?{hosts}&target_session_attrs=read-write&{options}"
        pipeline, met = Pipeline(url, None), []

        def fail_over(name):
            if name == "table.write.before":
                met.append(name)
                if len(met) == 5:
                    primary.kill()
                    standby.promote()

        with armed(fail_over):
            run_inline(pipeline(), CONFIG_THERE)
        assert len(met) > 5
        pipeline.check()


class Network(threading.Thread):
    """Passes bytes between clients and a server; once told to, it passes a COMMIT on and loses the answer."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.to = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.loses = 0
        self.lost = 0
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to))
                loses = threading.Event()
                for source, target, is_answer in ((client, server, False), (server, client, True)):
                    work = (source, target, loses, is_answer)
                    threading.Thread(target=self.passed, args=work, daemon=True).start()

    def passed(self, source, target, loses, is_answer):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if is_answer and loses.is_set():
                    self.lost += 1
                    break
                if not is_answer and b"COMMIT\0" in data and self.lost < self.loses:
                    loses.set()
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_a_network_that_loses_the_answers_of_commits(postgres, schema):
    """The server has committed, and nobody knows: the next try reads the mark, and writes nothing twice."""
    network = Network(postgres.port)
    pipeline = Pipeline(f"postgresql://tests@127.0.0.1:{network.port}/postgres", schema)
    run_inline(pipeline(), CONFIG_THERE, until=2)
    network.loses = 4
    for _ in range(4):  # where a state is opened, it is not tried again
        with contextlib.suppress(StateFailure, StopError):
            run_inline(pipeline(), CONFIG_THERE)
    network.loses = 0
    run_inline(pipeline(), CONFIG_THERE)
    assert network.lost == 4
    pipeline.check()
    network.listener.close()
