"""``backfill``: gives a state that is new in a topology the history that it would have from the start.

The part of the topology that writes it runs the transactions that the topology has committed, with their recorded
metadata, as an ordinary run with a coordinator state, a journal and scratch tables of its own; they are in
``backfill/<topology>/<states>`` in its metadata directory, and so is what it holds of the topology's past. The new
tables are in their places from the beginning, and have the topology's incarnation, so nothing is copied in the end. The
run's journal stays there: it is the evidence for the tables up to the transaction at which they joined the topology.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from urllib.parse import unquote

import attrs

from txtopo.assembly.environment import Environment
from txtopo.assembly.feed.references import References
from txtopo.assembly.parts import Observer, OnProgress
from txtopo.assembly.report import Progress, RunReport
from txtopo.assembly.storage import address_from, make_store, metadata_dir_of, optional_states, states_of
from txtopo.assembly.threads import Threads
from txtopo.backfill.beginning import SCRATCH, BackfillPlace
from txtopo.backfill.difference import difference_between
from txtopo.backfill.feed import JournalFeed, Recorded, without_given_up
from txtopo.backfill.joining import JoinedTopology
from txtopo.backfill.part import BackfillPart, part_of
from txtopo.config import Config
from txtopo.engine.control import RunControl
from txtopo.engine.runner import run_with
from txtopo.errors import ConfigError, DivergenceError
from txtopo.fork.fork import ForkPoint
from txtopo.journal.backfills import backfills_in
from txtopo.journal.entries import JournalEntry, JournalHeader
from txtopo.journal.folders import begin_journal, find_journal
from txtopo.journal.journal import journal_files
from txtopo.journal.writer import PART_BYTES_MAX, JournalWriter
from txtopo.topology.plans.plan import Plan
from txtopo.topology.topology import TransactionalTopology
from txtopo.transactional.commit.groups import Journal
from txtopo.transactional.recovery.coordinator_state import CommittedMark
from txtopo.transactional.recovery.membership import Membership


@attrs.frozen
class BackfillNews:
    """What a backfill tells on its way."""

    goes_back: Callable[[ForkPoint], None]
    """Called with the moment as of which tables are copied, before anything is written."""
    begins: Callable[[BackfillPart, int], None]
    """Called with what runs, and the transaction that it goes on after."""
    caught_up: Callable[[int], None]
    """Called with the last transaction once it has caught up with a topology that runs."""


@attrs.frozen
class BackfillReport:
    """The result of a backfill."""

    part: BackfillPart
    run: RunReport
    joined_at: int | None
    """The transaction at which the states joined the topology; None if it was stopped before."""


def backfill(  # noqa: PLR0913 - keyword arguments of an entry point
    topology: TransactionalTopology,
    config: Config,
    environment: Environment,
    state: str,
    news: BackfillNews,
    *,
    first: int | None = None,
    on_progress: OnProgress | None = None,
    control: RunControl | None = None,
) -> BackfillReport:
    """Give a state that is new in a topology its history, and make it part of the topology.

    The topology may be running: then this follows it, until it is at rest or a stop is requested. If a backfill was
    stopped or killed, the same call goes on with it.

    Args:
        topology: the topology with the state, as it will run from then on.
        config: its configuration.
        environment: that of an ordinary run of it.
        state: the state.
        news: what to tell on the way.
        first: the transaction to begin with, so that the table has nothing of earlier ones; None for the first. If
            tables have to be copied as of the one before, and no longer have that version, it begins after the newest
            point before.
        on_progress: as for :func:`txtopo.run`.
        control: as for :func:`txtopo.run`.

    Raises:
        ConfigError: the state, or the topology, can't be backfilled; nothing was written.
        DivergenceError: a component emits other tuples than it did when the topology committed a transaction, or the
            topology has gone back; nothing of that transaction was written.
        StopError: another process runs the same backfill.
    """
    plan = topology.plan
    _refuse_unknown(plan, state)
    with ExitStack() as stack:
        joined = _topology_to_join(plan, config, environment, stack)
        part = _part_of(plan, state, joined)
        folder = backfills_in(joined.metadata_dir, plan.topology_id).below(part.folder_name)
        place = BackfillPlace(part.plan(plan, str(folder.below(SCRATCH))), part, config, folder, joined)
        committed = place.begin(state, first, news.goes_back)
        news.begins(part, committed.txid)
        report, last = _run(place, committed, environment, news, on_progress, control)
        is_done = last is not None and report.committed_txid >= last
        if is_done:
            _join(place)
        return BackfillReport(part, report, last if is_done else None)


def _refuse_unknown(plan: Plan, state: str) -> None:
    if state not in plan.states:
        state_names = ", ".join(map(repr, plan.states)) or "none"
        raise ConfigError(f"topology {plan.topology_id!r} has no state {state!r}; its states are {state_names}")


def _refuse_opaque(plan: Plan, state: str, components: Collection[str]) -> None:
    opaque = [name for name, semantics in plan.semantics.items() if semantics.emits_in_turn and name in components]
    if opaque:
        raise ConfigError(
            f"{opaque[0]!r} is an opaque spout, which need not emit a transaction again as it was committed, so "
            f"state {state!r} can't get the history of the others; begin it empty, with topology.state.start.empty"
        )


def _topology_to_join(plan: Plan, config: Config, environment: Environment, stack: ExitStack) -> JoinedTopology:
    metadata_dir = metadata_dir_of(plan, config)
    if not journal_files(find_journal(metadata_dir, plan.topology_id)):
        raise ConfigError(
            f"there is no journal in {find_journal(metadata_dir, plan.topology_id)}, which says what each transaction "
            "held: run the topology first; it has a journal unless topology.journal.bytes.max is 0"
        )
    store = make_store(plan, config) if environment.make_store is None else environment.make_store()
    stack.callback(store.close)
    states = states_of(plan, config, environment.make_dead_letters)
    joined = JoinedTopology(plan.topology_id, store, metadata_dir, states, Membership(optional_states(plan, states)))
    stack.callback(joined.release)
    return joined


def _part_of(plan: Plan, state: str, joined: JoinedTopology) -> BackfillPart:
    """Return what has to run; raise ConfigError if the topology has the state already, or starts with it anyway."""
    if state in joined.membership.optional:
        raise ConfigError(f"state {state!r} may come and go, so the topology starts with it as it is")
    current_states = {name for name, mark in joined.committed().states.items() if mark.left_after is None}
    if state in current_states:
        # Its backfill may have been killed between the join and the removal of the scratch tables.
        backfills = backfills_in(joined.metadata_dir, plan.topology_id)
        for folder in backfills.folders():
            if state in map(unquote, folder.split(",")):
                backfills.delete_all(f"{folder}/{SCRATCH}")
        raise ConfigError(f"topology {plan.topology_id!r} has state {state!r} already: there is nothing to backfill")
    part = part_of(plan, state, current_states)
    _refuse_opaque(plan, state, part.components)
    joined.new = {name: plan.states[name] for name in part.new}
    joined.states = {name: each for name, each in joined.states.items() if name not in part.new}
    return part


def _run(  # noqa: PLR0913, PLR0917 - what a run takes
    place: BackfillPlace,
    committed: CommittedMark,
    environment: Environment,
    news: BackfillNews,
    on_progress: OnProgress | None,
    control: RunControl | None,
) -> tuple[RunReport, int | None]:
    """Run the recorded transactions; return the report, and the last one of all if the topology came to rest."""
    config, recorded = place.run_config(committed), Recorded()
    feeds: list[JournalFeed] = []

    def make_feed(threads: Threads) -> JournalFeed:
        now_secs, sleep = threads.now_secs, threads.sleep
        references = References(place.plan.references, now_secs)
        feeds.append(
            JournalFeed(place.topology, recorded, news.caught_up, references=references, now_secs=now_secs, sleep=sleep)
        )
        return feeds[0]

    def make_journal(header: JournalHeader) -> Journal:
        place.topology.epoch_min = header.epoch + 1
        feeds[0].follow(place.journal, header)
        bytes_max = max(config["topology.journal.bytes.max"], PART_BYTES_MAX)
        journal = JournalWriter(begin_journal(place.folder, header.topology, header.incarnation), header, bytes_max)
        return _CheckedJournal(journal, recorded, place.part.components)

    def progressed(progress: Progress) -> None:
        place.holding.go_on(progress.committed_txid)
        if on_progress is not None:
            on_progress(progress)

    backfill_parts = attrs.evolve(
        environment,
        make_store=None,
        make_feed=make_feed,
        make_journal=make_journal,
        run_phases=without_given_up(recorded),
        runs_ahead=False,
        observer=Observer(),
    )
    topology = TransactionalTopology(place.plan)
    report = run_with(topology, config, backfill_parts, on_progress=progressed, control=control)
    return report, feeds[0].last


def _join(place: BackfillPlace) -> None:
    with place.leading():  # so that no other process goes on with this backfill
        committed = place.committed()
        assert committed is not None, "it has just run"
        marks = {name: committed.states[name] for name in place.part.new}
        folder = place.topology.metadata_dir.parent
        addresses_of_states = {name: place.plan.states[name].address for name in marks}
        addresses = {name: address_from(folder, each) for name, each in addresses_of_states.items() if each is not None}
        place.topology.join(committed.txid, marks, addresses, place.plan.folds)
        # A crash before this leaves the scratch tables, which the next call removes.
        place.folder.delete_all(SCRATCH)
        place.holding.end()


class _CheckedJournal:
    """A backfill's journal, which refuses a transaction that is not the one that the topology has committed.

    The components that the topology had are compared by the number of tuples that they emitted, and by their checksums
    where both are known. A component that the recorded transactions never named may be new.
    """

    def __init__(self, journal: Journal, recorded: Recorded, components: tuple[str, ...]) -> None:
        self._journal = journal
        self._recorded = recorded
        self._components = components
        self._seen: set[str] = set()
        """The components that recorded transactions have named so far."""

    def enter(self, entry: JournalEntry) -> None:
        """Compare the transactions of a group, and append it to the journal; see :meth:`Journal.enter`.

        Raises:
            DivergenceError: one of them differs; nothing of its group is written.
        """
        for transaction in entry.transactions:
            recorded = self._recorded[transaction.txid]
            self._seen.update(recorded.fingerprints)
            difference = difference_between(recorded, transaction, self._components, self._seen)
            if difference is not None:
                raise DivergenceError(
                    f"{difference}. Nothing of it is written. Run the backfill with code that emits what was emitted "
                    "then, or begin after that transaction with --from",
                    txid=transaction.txid,
                )
        self._journal.enter(entry)
        for transaction in entry.transactions:
            self._recorded.pop(transaction.txid)

    def decided(self) -> None:
        """See :meth:`Journal.decided`."""
        self._journal.decided()
