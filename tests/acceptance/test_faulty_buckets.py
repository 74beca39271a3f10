"""A topology in a bucket that does not do what it is asked: each fault at a rate, for a while or for good."""

import time
from collections.abc import Iterator

import pytest

pytest.importorskip("obstore")

from state.stores.objects import ObjectStore
from tests.acceptance.test_buckets import DATA, OUTPUT
from tests.acceptance.topologies import counts_of, read_words, words_topology
from tests.object_server import ObjectStore as Server
from txtopo import Config
from txtopo.api.store import Put
from txtopo.errors import TxtopoError
from txtopo.files.objects import ObjectFolder
from txtopo.inspect.audit.evidence import audited
from txtopo.testing.inline import run_inline


def run(until: int | None = None) -> None:
    run_inline(words_topology(OUTPUT, DATA), Config(group_transactions_max=2), until=until)


def is_whole() -> bool:
    """Whether all of it is there once, with a proof."""
    return (
        read_words(OUTPUT) == counts_of(DATA)
        and not audited(ObjectFolder(f"{OUTPUT}/_txtopo"), "words", with_rows=True).findings
    )


@pytest.fixture
def server(bucket_server: Server) -> Iterator[Server]:
    yield bucket_server
    bucket_server.fail("lost", 0)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["lost", "throttled", "broken"])
def test_a_fault_of_some_requests(server: Server, fault: str) -> None:
    """Each seventh request of any kind fails, from the first start on: clients ask again, and nothing is doubled."""
    server.fail(fault, 7)
    run()
    server.fail(fault, 0)
    assert is_whole()


@pytest.mark.slow
def test_one_prefix_is_throttled(server: Server) -> None:
    """Half of the requests for one table are refused: it waits for that table, and all stay together."""
    server.fail("throttled", 2, below="/shop/total/")
    run()
    server.fail("throttled", 0)
    assert is_whole()


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("fault", "code"), [("denied", "AccessDenied"), ("expired", "ExpiredToken"), ("full", "QuotaExceeded")]
)
@pytest.mark.parametrize("below", ["/_txtopo/coordinator/", "/shop/words/", "/_txtopo/journal/"])
def test_what_may_no_longer_be_written(server: Server, fault: str, code: str, below: str) -> None:
    """The run ends with what the store said, wherever it is refused; when it may again, the next run goes on exactly."""
    run(4)
    server.fail(fault, 1, kinds="PUT", below=below)
    with pytest.raises(TxtopoError, match=code):
        run()
    server.fail(fault, 0)
    run()
    assert is_whole()


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["PUT", "GET"])
def test_what_is_staged_and_can_not_be_had(server: Server, kinds: str) -> None:
    """Where a store takes or gives only half of what is staged, those transactions are processed again."""
    server.fail("denied", 2, kinds=kinds, below="/staging/")
    report = run_inline(words_topology(OUTPUT, DATA), Config(group_transactions_max=2, received_bytes_max=1))
    server.fail("denied", 0)
    assert report.failures > 0
    assert is_whole()


@pytest.mark.slow
def test_a_name_is_put_once_a_second(server: Server) -> None:
    """Where a store takes no more, as Google's, only the run's snapshot waits, and at the start the check of the store."""
    run(2)
    server.asked()
    server.limit_puts(1.0)
    run(7)
    refused = {name.partition(" ")[2].rpartition("/")[0] for name in server.asked() if name.startswith("REFUSED")}
    assert refused == {"shop/_txtopo", "shop/_txtopo/coordinator"}
    server.limit_puts(0.0)
    run()
    assert is_whole()


@pytest.mark.slow
def test_listings_that_are_late(server: Server) -> None:
    """Tables are found by listing their logs, as all readers do: while what was put is not listed, a start is refused.

    Nothing is begun anew or doubled meanwhile.
    """
    run(4)
    server.list_late(3600)
    with pytest.raises(TxtopoError):
        run()
    server.list_late(0)
    run()
    assert is_whole()


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_an_hour_off(server: Server, hours: int) -> None:
    """Leads are told by each machine's own clock: nobody is taken for dead, or alive, by the store's."""
    server.set_clock(time.time() + 3600 * hours)
    with_lead = ObjectStore("s3://bucket/clock", server.options, lease_secs=1.0)
    lead = with_lead.take_lead("t", "one")
    lead.write([Put("t/a", b"1")])
    with_lead.close()
    other = ObjectStore("s3://bucket/clock", server.options, lease_secs=1.0)
    assert other.take_lead("t", "two").epoch == 2
    assert other.read("t/a") == b"1"
    other.close()
