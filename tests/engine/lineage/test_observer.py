"""What a collector of lineage is told of runs: exactly what they have read and written, whatever becomes of them."""

import json
import logging
import sys
import threading

import attrs
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from openlineage.client.serde import Serde

from committers import AppendCommitter, Count, ReduceCommitter, Sum
from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState
from tests.engine.lineage.shapes import misfits
from tests.processes import ran
from tests.waiting import wait_for
from txtopo import BasicBolt, Config, FailedException, Fields, TransactionalTopologyBuilder
from txtopo.attempts import TransactionAttempt
from txtopo.engine.lineage.account import PARTITIONS_MAX, Account, Read
from txtopo.engine.lineage.events import run_id
from txtopo.engine.lineage.observer import Lineage
from txtopo.engine.runner import run_with
from txtopo.errors import ConfigError, RuleError
from txtopo.main.group import txtopo
from txtopo.streams import Flow
from txtopo.testing import run_inline
from txtopo.testing.inline import inline_environment
from txtopo.transactional.core.actions import StopReason
from txtopo.transactional.core.measures import Measures, StateWrite, TransactionInput
from txtopo.transactional.core.record.facts import of_attempts
from txtopo.transactional.core.record.history import HistoryEvent
from txtopo.transactional.core.record.record import Record

FIELDS = Fields("customer: string", "amount: long")
ROWS = [["ann", number] for number in range(20)]
ON = Config(lineage=True, max_spout_pending=6, group_transactions_max=2)


class Refusing(BasicBolt):
    """Fails a transaction with a row, or ends the run with an error."""

    def __init__(self, amount=None, error=None):
        self.amount, self.error = amount, error

    def declare_output_fields(self, declarer):
        declarer.declare(FIELDS.with_attempt())

    def execute(self, tuple, collector):
        if tuple["amount"] == self.amount:
            raise FailedException("again and again") if self.error is None else ValueError(self.error)
        collector.emit([tuple[0], tuple["customer"], tuple["amount"]])


def topology(bolt=None, rows=ROWS):
    builder = TransactionalTopologyBuilder("shop", "orders", MemoryTransactionalSpout(rows, FIELDS, 3))
    builder.set_bolt("check", bolt or Refusing()).shuffle_grouping("orders")
    builder.set_committer_bolt("sum", ReduceCommitter("totals", "customer", "amount")).fields_grouping(
        "check", Fields("customer")
    )
    builder.set_state("totals", DeltaState("totals", Fields("customer: string"), Fields("amount: long")))
    builder.set_committer_bolt("log", AppendCommitter("log")).shuffle_grouping("check")
    builder.set_state("log", DeltaRows("log", FIELDS))
    return builder.build()


@pytest.fixture(autouse=True)
def events(tmp_path, monkeypatch):
    """What was told so far; at the end all of it must be as OpenLineage allows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(tmp_path / "told"))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    told = tmp_path / "told"
    yield lambda: list(map(json.loads, told.read_text().splitlines()))
    for line in told.read_text().splitlines() if told.exists() else ():
        assert list(misfits(json.loads(line))) == []


def kinds(events):
    return [event["eventType"] for event in events]


def span(event):
    """The input of an event: (start, end)."""
    (read,) = event["inputs"]
    (found,) = read["inputFacets"]["txtopo_ranges"]["ranges"]
    return found["start"], found["end"]


def output(event, name):
    return next(each for each in event["outputs"] if each["name"].endswith(f"/{name}"))


def transactions(event):
    facet = event["run"]["facets"]["txtopo_transactions"]
    return facet.get("first"), facet.get("last"), facet["deadLetters"]


def test_a_run_starts_and_completes_with_what_it_has_read_and_written(events, tmp_path):
    """The ranges are those of the committed transactions, and the versions those of the tables."""
    run_inline(topology(), ON)
    started, completed = events()
    assert kinds(events()) == ["START", "COMPLETE"]
    assert started["run"]["runId"] == completed["run"]["runId"]
    assert (completed["job"]["namespace"], completed["job"]["name"]) == ("txtopo", "shop")
    assert span(completed) == (0, 20)
    assert transactions(completed) == (1, 7, 0)
    for name, rows in (("totals", 7), ("log", 20)):
        told = output(completed, name)
        assert (told["namespace"], told["name"]) == ("file", str(tmp_path / name))
        assert told["facets"]["version"]["datasetVersion"] == str(DeltaTable(name).version())
        assert told["facets"]["txtopo_transaction"]["txid"] == 7
        assert told["outputFacets"]["outputStatistics"]["rowCount"] <= rows
        assert told["facets"]["lineage"]["inputs"][0]["name"] == "shop.orders"
    assert "version" not in output(started, "log")["facets"], "a run that starts has written nothing"


@pytest.mark.slow
def test_a_run_that_follows_tells_of_its_own_transactions_only(events):
    """Each start is a run of its own, and their ranges follow each other."""
    run_inline(topology(), ON, until=3)
    run_inline(topology(), ON)
    _, first, _, second = events()
    assert (span(first), span(second)) == ((0, 9), (9, 20))
    assert first["run"]["runId"] != second["run"]["runId"]


CHILD = """
from tests.engine.lineage.test_observer import ON, topology
from txtopo.engine.runner import run_with
from txtopo.testing import run_inline
from txtopo.testing.inline import inline_environment
run_inline(topology(), ON)
"""


@pytest.mark.slow
def test_a_run_that_was_killed_is_ended_by_the_next_with_what_it_had_committed(events):
    """Of a killed run nothing is lost and nothing told twice: what its journal has, and what recovery finishes."""
    killed = ran("-c", CHILD, failpoints="table.write.after=kill:4")
    assert killed.returncode == -9, killed.stderr
    run_inline(topology(), ON)
    told = events()
    assert sorted(kinds(told)) == ["ABORT", "COMPLETE", "START", "START"]
    aborted = next(each for each in told if each["eventType"] == "ABORT")
    assert aborted["run"]["runId"] == told[0]["run"]["runId"] == run_id(incarnation(told[0]), 1)
    assert span(aborted)[1] == span(told[-1])[0] > 0
    assert (span(aborted)[0], span(told[-1])[1]) == (0, 20)
    assert transactions(aborted)[1] + 1 == transactions(told[-1])[0]
    run_inline(topology(), ON)
    assert kinds(events())[4:] == ["START", "COMPLETE"], "a run that has ended is not ended again"


def incarnation(event):
    return event["run"]["facets"]["txtopo_transactions"]["incarnation"]


@pytest.mark.slow
def test_after_a_rewind_a_run_tells_again_of_what_it_does_again(events, tmp_path, monkeypatch):
    """Its ranges begin at the point; it has an id of its own, and the versions of the tables go on."""
    (tmp_path / "a_shop.py").write_text("import tests.engine.lineage.test_observer as t\n\ntopology = t.topology()\n")
    monkeypatch.syspath_prepend(tmp_path)
    run_inline(topology(), ON, until=3)
    run_inline(topology(), ON, until=5)
    assert CliRunner().invoke(txtopo, ["rewind", "a_shop", "3", "--yes"], catch_exceptions=False).exit_code == 0
    run_inline(topology(), ON)
    assert kinds(events()) == ["START", "COMPLETE"] * 3, "a rewind is no run"
    before, after = events()[3], events()[5]
    assert (span(before), span(after)) == ((9, 15), (9, 20))
    assert before["run"]["runId"] != after["run"]["runId"]
    versions = [int(output(each, "log")["facets"]["version"]["datasetVersion"]) for each in (before, after)]
    assert versions[0] < versions[1]


def test_what_is_skipped_is_read_and_goes_to_the_dead_letters(events):
    """The range of a run has the input of dead letters, too, and their table is one of its outputs."""
    config = ON.with_settings(
        {"topology.transaction.max.attempts": 2, "topology.transaction.max.attempts.policy": "SKIP"}
    )
    run_inline(topology(Refusing(4)), config)
    completed = events()[-1]
    assert span(completed) == (0, 20)
    assert transactions(completed) == (1, 7, 1)
    assert completed["run"]["facets"]["txtopo_transactions"]["failures"] >= 2
    assert output(completed, "dead_letters")["facets"]["txtopo_transaction"]["txid"] == 2


def test_a_run_that_fails_says_why_without_secrets(events):
    """The event FAIL has the error, and what was committed before."""
    config = Config({**ON.given, "my.password": "hunter2"})
    with pytest.raises(RuleError):
        run_inline(topology(Refusing(19, "the password is hunter2")), config)
    failed = events()[-1]
    assert failed["eventType"] == "FAIL"
    assert "ValueError" in failed["run"]["facets"]["errorMessage"]["message"]
    assert "hunter2" not in json.dumps(events())


def test_the_columns_of_a_flow(events):
    """Each column of a table names the fields of the sources that it is made of."""
    flow = Flow("shop", "out")
    orders = flow.source("orders", MemoryTransactionalSpout(ROWS, FIELDS, 3))
    orders.with_columns(twice="amount * 2").group_by("customer").agg(sum=Sum("twice"), n=Count()).upsert("totals")
    run_inline(flow.build(), ON)
    fields = output(events()[0], "totals")["facets"]["columnLineage"]["fields"]
    assert {name: [each["field"] for each in made["inputFields"]] for name, made in fields.items()} == {
        "customer": ["customer"],
        "sum": ["amount"],
        "n": [],
    }
    assert fields["sum"]["inputFields"][0]["name"] == "shop.orders"


class Collecting:
    """A collector that keeps events, may refuse some, and may hang."""

    def __init__(self, refuses=0, hangs=None):
        self.events, self.refuses, self.hangs = [], refuses, hangs

    def emit(self, event):
        if self.hangs is not None:
            self.hangs.wait(60)
        if self.refuses:
            self.refuses -= 1
            raise ConnectionError("nobody listens")
        self.events.append(json.loads(Serde.to_json(event)))

    def close(self, timeout):
        pass


def committed(*txids):
    """The fact that a group has committed transactions of three rows each."""
    inputs = [TransactionInput({"orders": {"0": (3 * txid - 3, 3 * txid)}}) for txid in txids]
    measures = Measures({"log": StateWrite((0, 0), (0, 0), 3 * len(txids), 0, txids[-1] + 5)}, inputs)
    return of_attempts(0.0, HistoryEvent.COMMITTED, [TransactionAttempt(txid, 1) for txid in txids], measures=measures)


def lineage(to, **options):
    made = topology()
    return Lineage(made, made.plan.states, Config(), has_files=False, to=to, running_secs=0.01, **options)


def test_a_run_that_goes_on_says_what_it_has_done_so_far():
    """RUNNING comes now and then if something was committed; its ranges are those since the start."""
    to = Collecting()
    with lineage(to) as told:
        told.leads("inc", 3)
        told.began(Record(), lambda: 0)
        for txids in ((1, 2), (3,)):
            told.recorded(committed(*txids))
            wait_for("an event", lambda last=txids[-1]: to.events and transactions(to.events[-1])[1] == last)
        assert {*kinds(to.events)} == {"START", "RUNNING"}
        assert span(to.events[-1]) == (0, 9)
        assert output(to.events[-1], "log")["facets"]["version"]["datasetVersion"] == "8"
        told.ended = StopReason.REQUESTED.value
    assert kinds(to.events)[-1] == "ABORT"


def test_what_a_collector_refused_comes_later(caplog):
    """It is told again with what the run has done by then, and a warning comes once."""
    to = Collecting(refuses=5)
    with lineage(to) as told:
        told.leads("inc", 3)
        for txid in range(1, 1000):
            told.recorded(committed(txid))
        wait_for("the start", lambda: to.events)
    assert kinds(to.events)[0] == "START"
    assert span(to.events[-1]) == (0, 3 * 999)
    assert len([record for record in caplog.records if "lineage" in record.message]) == 1


@pytest.mark.slow
def test_a_collector_that_is_down_or_hangs_harms_no_run(caplog):
    """The run ends as without it."""
    config = Config(max_spout_pending=6, group_transactions_max=2)
    for to in (Collecting(refuses=1_000_000), Collecting(hangs=(hanging := threading.Event()))):
        caplog.clear()
        with caplog.at_level(logging.WARNING), lineage(to, close_secs=0.05) as told:
            environment = attrs.evolve(inline_environment(), observer=told)
            assert run_with(topology(), config, environment, until=7).committed_txid == 7
        assert len([record for record in caplog.records if "lineage" in record.message]) == 1
    hanging.set()


def test_many_partitions_are_left_out_but_counted():
    """Files are partitions, too: the events of a run over a million of them stay small."""
    read = Read()
    for number in range(PARTITIONS_MAX + 7):
        read.add({f"file-{number}": (0, 10)})
    assert (len(read.ranges), read.left_out) == (PARTITIONS_MAX, 7)
    assert Account().first is None


def test_settings_that_are_wrong_are_refused_at_once(monkeypatch):
    """Nothing is written."""
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "of nobody")
    with pytest.raises(ConfigError, match=r"topology\.lineage: OpenLineage's client"):
        run_inline(topology(), ON)
    monkeypatch.setitem(sys.modules, "openlineage.client.client", None)
    monkeypatch.delitem(sys.modules, "txtopo.engine.lineage.observer")
    with pytest.raises(ConfigError, match=r"topology\.lineage needs openlineage.*\[lineage\]"):
        run_inline(topology(), ON)
