"""A table whose server has a standby: nothing is read of it before it is the primary, and nothing is left out then."""

from collections.abc import Iterator
from typing import Any

import pytest

from spouts import OpaqueSqlTransactionalSpout, SqlTransactionalSpout
from tests.postgres import Client, PostgresServer
from tests.spouts.sql.test_spout import ids_of, take
from tests.waiting import wait_for
from txtopo import Fields
from txtopo.errors import InputError, SourceFailure
from txtopo.testing.context import PlainContext

FIELDS = Fields("id: long", "updated_at: timestamp")
MADE = "CREATE TABLE rows (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, updated_at timestamptz NOT NULL DEFAULT now())"


@pytest.fixture
def servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary with the table, and a standby that has all of it and waits for each commit."""
    settings = {"synchronous_standby_names": "*", "synchronous_commit": "local"}
    with PostgresServer(settings) as primary, Client(primary.url, "public") as client, primary.standby() as standby:
        client.run(MADE)
        standby.start()
        wait_for(
            "the standby is synchronous",
            lambda: client.rows("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"),
        )
        client.run("SET synchronous_commit TO remote_apply")
        client.run("INSERT INTO rows DEFAULT VALUES")
        yield primary, standby


def url_of(servers: tuple[PostgresServer, ...], options: str = "") -> str:
    hosts = "&".join(f"host=127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://tests@/postgres?{hosts}&connect_timeout=2{options}"


def begun(spout: Any) -> Any:
    coordinator = spout.coordinator({}, PlainContext())
    coordinator.resume(0, {} if isinstance(spout, OpaqueSqlTransactionalSpout) else None)
    return coordinator


@pytest.mark.slow
def test_a_replica_is_refused(servers: tuple[PostgresServer, PostgresServer]) -> None:
    """It does not tell who writes: neither spout begins with it, nor goes over to it when the primary has failed."""
    primary, standby = servers
    made = (SqlTransactionalSpout, OpaqueSqlTransactionalSpout)
    for kind in made:
        with pytest.raises(InputError, match="is a replica, which does not know which transactions run"):
            begun(kind(standby.url, "rows", FIELDS))
    following = [begun(kind(url_of(servers), "rows", FIELDS, watch=True, poll_secs=0)) for kind in made]
    primary.kill()
    for coordinator in following:
        with pytest.raises(InputError, match="read the primary, which target_session_attrs=read-write"):
            coordinator.is_ready()
        coordinator.close()


@pytest.mark.slow
def test_a_standby_that_takes_over(servers: tuple[PostgresServer, PostgresServer]) -> None:
    """A URL that asks for the primary waits for the standby to be it; each row that was committed comes once."""
    primary, standby = servers
    url = url_of(servers, "&target_session_attrs=read-write")
    spout = SqlTransactionalSpout(url, "rows", FIELDS, watch=True, poll_secs=0)
    coordinator, found = begun(spout), list[Any]()
    take(coordinator, found)
    quick = Client(primary.url, "public")
    slow = quick.other()
    slow.begin()
    slow.run("INSERT INTO rows DEFAULT VALUES")
    quick.run("SET synchronous_commit TO remote_apply")
    quick.run("INSERT INTO rows DEFAULT VALUES")
    take(coordinator, found)
    assert [ids_of(spout, each) for each in found] == [[1]]
    primary.kill()
    with pytest.raises(SourceFailure):
        coordinator.is_ready()
    standby.promote()
    with Client(standby.url, "public") as client:
        client.run("INSERT INTO rows DEFAULT VALUES")
        last = client.rows("SELECT max(id) FROM rows")[0][0]
    take(coordinator, found)
    coordinator.close()
    assert [number for each in found for number in ids_of(spout, each)] == [1, 3, last]
