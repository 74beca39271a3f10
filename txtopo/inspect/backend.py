"""Answers to questions about topologies, from the folder in which their runs leave what there is to know."""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from txtopo.assembly.snapshot import Snapshot, Writer, read_snapshot, snapshots_in, topologies_with_snapshot
from txtopo.engine.exposition import WrittenMetrics
from txtopo.engine.timeline.ends import bring_end, ended_in, place_in
from txtopo.engine.timeline.records import FOLDER_PREFIX, SAMPLES_SECS, past_in
from txtopo.errors import ConfigError, DivergenceError, TxtopoError
from txtopo.files.folder import Folder
from txtopo.files.objects import ObjectFolder
from txtopo.inspect.cluster import Changed, Cluster
from txtopo.inspect.past import tables
from txtopo.inspect.past.story import Known
from txtopo.inspect.past.tables import Rows, States
from txtopo.inspect.past.transaction import Attempts, CanCheck, Transaction, transaction_by_timeline, transaction_of
from txtopo.inspect.questions import NotFound, Number, Question, Text, answers, questions_of
from txtopo.inspect.run import drawing, failures, header, settings
from txtopo.inspect.run.drawing import Graph
from txtopo.inspect.run.failures import Errors
from txtopo.inspect.run.known import KnownRun, is_live, now_of, status_of
from txtopo.inspect.run.settings import Settings
from txtopo.inspect.run.slugs import OF_RUN, slug_of
from txtopo.inspect.run.status import Can, Header, Run, Runs, Topologies
from txtopo.inspect.timeline import series
from txtopo.inspect.timeline.attempts import Timeline, Transactions
from txtopo.inspect.timeline.series import Plots
from txtopo.inspect.timeline.timeline import TimelineReader
from txtopo.journal.ending import METADATA_DIR, read_end
from txtopo.journal.folders import find_journal, topologies_with_journal
from txtopo.journal.journal import journal_files
from txtopo.text.extras import version
from txtopo.text.secrecy import without_secrets

FACTS_SECS = 0.25
"""How old what is known of a topology may be."""

ASK_SECS = 3.0
"""How often a bucket is asked for the timeline of a run that was elsewhere and has put none yet."""

LIMIT_MAX = 1_000
"""More rows are no page, and would be in memory several times."""
_SECS_MAX = 1 << 33
_LINES_MAX = 1_000
"""How many lines of lists are kept: those of 20 topologies with 50 earlier runs."""
_NUMBER = re.compile(r"[0-9]{1,10}")


@attrs.define(eq=False)
class _Topology:
    """One topology of a folder; ``id`` is not to be trusted."""

    id: str
    metadata_dir: Folder
    timeline: TimelineReader
    past: int | None = None
    """The number of an earlier run, if it is one."""

    _known: tuple[float, KnownRun] | None = None
    _there: TimelineReader | None = None
    """The timeline of the last run of a topology in a bucket, if that was on another machine."""
    _asked_at: float = -math.inf

    @classmethod
    def of(cls, topology_id: str, metadata_dir: Folder) -> _Topology:
        """Return a topology, with the timeline that its runs on this machine keep."""
        place = place_in(metadata_dir, topology_id) or Path("/nonexistent")
        there = TimelineReader(ended_in(place)) if isinstance(metadata_dir, ObjectFolder) else None
        return cls(topology_id, metadata_dir, TimelineReader(place), there=there)

    def close(self) -> None:
        """Close all files."""
        for reader in filter(None, (self.timeline, self._there)):
            reader.close()

    def known_run(self) -> KnownRun:
        """Return what is known of it, which may be a moment old: the parts of a page ask at the same time."""
        now = time.monotonic()
        if self._known is None or now - self._known[0] > FACTS_SECS:
            self._known = now, self._read()
        return self._known[1]

    @property
    def shown(self) -> TimelineReader:
        """The timeline of the last run, here or brought here."""
        return self.known_run().timeline

    def snapshot(self) -> tuple[Writer, Snapshot] | None:
        """Return the last snapshot and its writer; None if there is none, or it can't be read."""
        known = self.known_run()
        return None if known.writer is None or known.snapshot is None else (known.writer, known.snapshot)

    def _read(self) -> KnownRun:
        if self.past is not None:
            return KnownRun(self.id, self.timeline, self.timeline.run(), None, None, self.past)
        writer, snapshot, damage = None, None, ""
        try:
            writer, snapshot = read_snapshot(snapshots_in(self.metadata_dir), self.id) or (None, None)
        except ConfigError as error:  # the rest is shown all the same
            damage = without_secrets(error.message)
        timeline = self.timeline
        if self._there is not None and writer is not None and not _is_of(timeline, writer):
            # Of a run elsewhere; what is here is older.
            timeline = self._there
            if not _is_of(timeline, writer) and time.monotonic() - self._asked_at > ASK_SECS:
                self._asked_at = time.monotonic()
                is_over = snapshot is not None and bool(snapshot.ended)
                assert isinstance(self.metadata_dir, ObjectFolder), "only then there is another one"
                bring_end(self.metadata_dir, self.timeline.folder, self.id, writer.epoch if is_over else None)
        undone_to = None if writer is None or snapshot is None else self._undone_to(writer, snapshot)
        return KnownRun(self.id, timeline, timeline.run(), writer, snapshot, undone_to=undone_to, damage=damage)

    def _undone_to(self, writer: Writer, snapshot: Snapshot) -> int | None:
        """Return the transaction to which a command has brought it back since a run that is over, if one has."""
        if snapshot.ended or writer.is_alive is False:
            with contextlib.suppress(DivergenceError):  # of a damaged journal
                end = read_end(find_journal(self.metadata_dir, self.id))
                if end is not None and end.header.epoch > writer.epoch and end.last is None:
                    return end.header.committed
        return None

    @property
    def is_there(self) -> bool:
        """Whether it has left anything under its id: a rename takes all of it away."""
        return self.known_run().writer is not None or self.timeline.is_there or self.has_journal

    def former_slugs(self) -> set[str]:
        """Return the slugs of the ids that it had before it was renamed."""
        with contextlib.suppress(DivergenceError):  # of a damaged journal
            end = read_end(find_journal(self.metadata_dir, self.id))
            return (
                set() if end is None else {slug_of(rename.former) for rename in end.header.renames if rename.is_of_id}
            )
        return set()

    @property
    def has_journal(self) -> bool:
        return self.past is None and bool(journal_files(find_journal(self.metadata_dir, self.id)))

    def past_run(self, number: int) -> _Topology | None:
        """Return an earlier run; None if there is none of this number any more."""
        folder = past_in(self.timeline.folder).get(number)
        return None if folder is None else _Topology(self.id, self.metadata_dir, TimelineReader(folder), number)


def _is_of(timeline: TimelineReader, writer: Writer) -> bool:
    """Whether a timeline is that of a run, or of a later one of the same topology."""
    run = timeline.run()
    return run is not None and run.writer.incarnation == writer.incarnation and run.writer.epoch >= writer.epoch


class FolderBackend:
    """The topologies of an output folder.

    Args:
        output: the folder that holds tables and ``_txtopo``, or ``_txtopo`` itself.
        can_replay: whether the page can begin replays, because it knows the topology's module.
        arguments: of the topology's function, to show.

    Raises:
        ConfigError: no run has left anything there, unless ``may_be_empty``: a run is to begin.
    """

    past_open_max = 8
    """How many earlier runs stay open for who looks at them: each has two mapped files."""

    def __init__(
        self,
        output: Folder,
        *,
        can_replay: bool = False,
        arguments: Mapping[str, str] | None = None,
        may_be_empty: bool = False,
    ) -> None:
        self.output = output
        self._can_replay = can_replay
        self._arguments = dict(arguments or {})
        self._lock = threading.Lock()
        self._kept = tables.KeptTables()
        self._known: dict[str, _Topology] = {}
        self._past: dict[str, _Topology] = {}
        """Earlier runs that somebody looks at, by slug."""
        self._lines: dict[tuple[Path, int], Run] = {}
        """Those of earlier runs in lists, by the folder and its time: they do not change any more."""
        if not self._refreshed() and not may_be_empty:
            raise ConfigError(
                f"no run has left anything in {output}: pass the folder that holds a topology's tables and its folder "
                f"{METADATA_DIR!r}"
            )

    @property
    def is_live(self) -> bool:
        """Whether one of the topologies runs, as far as this machine can see."""
        return any(is_live(topology.known_run()) for topology in self._refreshed().values())

    def answer(self, question: Question, slug: str, given: Mapping[str, Any]) -> Any:
        """Return the answer to a question."""
        return question.ask(self, slug, **given)

    def topologies(self) -> Topologies:
        """See :class:`~txtopo.inspect.questions.Backend`, as for what has no other words."""
        found = sorted(self._refreshed().values(), key=lambda topology: topology.id)
        return Topologies(
            version(), str(self.output), topologies=[header.summary(topology.known_run()) for topology in found]
        )

    @answers("", "Status, rate, lag, the lowest uncommitted transaction")
    def header(self, slug: str) -> Header:
        """See :class:`~txtopo.inspect.questions.Backend`."""
        topology = self._find(slug)
        known = topology.known_run()
        return header.header(known, Can(topology.has_journal, topology.has_journal and self._can_replay))

    @answers(
        "timeline",
        "Attempts and writes after a record; give `head` as `since` the next time",
        Number("since", 0),
        kind=Timeline,
    )
    def timeline(self, slug: str, since: int) -> bytes:
        """Return the timeline after a record, as JSON text: many ask for it, so it is encoded once."""
        topology = self._find(slug)
        return topology.shown.since(since, now_of(topology.known_run()))

    @answers(
        "transactions",
        "Transactions, newest first",
        Number("from", 0, keyword="first"),
        Number("to", None, keyword="last"),
        Number("limit", 200, LIMIT_MAX),
        Number("failed", 0, 1),
    )
    def transactions(self, slug: str, first: int, last: int | None, limit: int, failed: int) -> Transactions:
        """Return transactions, newest first; only those with a failed attempt if ``failed`` is 1."""
        topology = self._find(slug)
        return topology.shown.transactions(
            first, last, limit, failed=bool(failed), undone_to=topology.known_run().undone_to
        )

    @answers("transaction/{txid}", "One transaction: story, attempts, writes")
    def transaction(self, slug: str, txid: int) -> Transaction:
        """Return all about one transaction."""
        topology = self._find(slug)
        run = topology.known_run()
        attempts = Attempts.of(topology.shown, txid, run.undone_to)  # before the journal, which then has no less
        now, why = now_of(run), ""
        if topology.past is None:
            try:
                known = Known.of(topology.metadata_dir, topology.id, topology.snapshot())
                return transaction_of(known, txid, attempts, now, CanCheck(topology.has_journal, self._can_replay))
            except TxtopoError as error:  # the journal is damaged, nothing is known of it, or it has not begun
                why = without_secrets(error.message)
                if not isinstance(error, DivergenceError) or not attempts.attempts:
                    raise NotFound(why) from error
        if not attempts.attempts:
            raise NotFound(f"this run has begun no transaction {txid}, or its timeline no longer has it")
        return transaction_by_timeline(topology.shown, txid, attempts, now, why)

    @answers("errors", "The last hundred errors, in groups")
    def errors(self, slug: str) -> Errors:
        """Return the last errors in groups."""
        topology = self._find(slug)
        return failures.errors(topology.known_run())

    @answers("state", "The states and the size of their tables")
    def states(self, slug: str) -> States:
        """Return the states with their tables."""
        topology = self._find(slug)
        known = topology.known_run()
        described = {} if known.run is None else known.run.graph.get("states", {})
        found, why = tables.states(topology.metadata_dir, topology.id, described, self._kept)
        return States(found, is_live(known), why)

    @answers(
        "state/rows",
        "Rows of a state, now or as of a transaction; `key` once for each key field",
        Text("name"),
        Text("key", "keys", is_list=True),
        Number("txid", None),
        Number("limit", 50, LIMIT_MAX),
    )
    def rows(self, slug: str, name: str, keys: Sequence[str], txid: int | None, limit: int) -> Rows:
        """Return rows of a state."""
        paths = {state.name: state.path for state in self.states(slug).states}
        if not paths.get(name):
            raise NotFound(f"there is no table of a state {name!r}")
        return tables.rows(name, paths[name], keys, txid, limit)

    @answers("graph", "Components, edges, states, counts")
    def graph(self, slug: str) -> Graph:
        """Return components and edges."""
        return drawing.graph(self._find(slug).known_run())

    @answers(
        "plots",
        "Samples as lines over the last seconds, or those before a moment in seconds since 1970",
        Number("secs", 300, SAMPLES_SECS),
        Number("until", None, _SECS_MAX),
    )
    def plots(self, slug: str, secs: int, until: int | None = None) -> Plots:
        """Return the plots of some seconds, the last ones or those before a moment in seconds since 1970."""
        topology = self._find(slug)
        known = topology.known_run()
        return series.plots(topology.shown, secs or 1, until, now_of(known), is_over=not is_live(known))

    @answers("settings", "The settings, those that differ from their default first")
    def settings(self, slug: str) -> Settings:
        """Return the settings."""
        return settings.settings(self._find(slug).known_run(), self._arguments)

    @answers("runs", "The last run, and earlier ones that are kept: their slugs take the place of the topology's")
    def runs(self, slug: str) -> Runs:
        """Return the last run and those before it that are kept, each with the slug under which it is answered for."""
        topology = self._find(slug.partition(OF_RUN)[0])
        past = past_in(topology.timeline.folder)
        lines = [self._line_of(topology, number, folder) for number, folder in past.items()]
        return Runs([header.run_of(topology.known_run()), *filter(None, lines)])

    def _line_of(self, topology: _Topology, number: int, folder: Path) -> Run | None:
        try:
            key = folder, folder.stat().st_mtime_ns
        except OSError:  # a later run has removed it
            return None
        if key not in self._lines:
            run = topology.past_run(number)
            if run is None:
                return None
            while len(self._lines) >= _LINES_MAX:
                self._lines.pop(next(iter(self._lines)))
            self._lines[key] = header.run_of(run.known_run())
            run.timeline.close()
        return self._lines[key]

    def metrics(self) -> bytes:
        """See :class:`~txtopo.inspect.questions.Backend`."""
        found = self._refreshed().values()
        registry = CollectorRegistry()
        registry.register(
            WrittenMetrics("topology", lambda: {topology.id: topology.timeline.metrics for topology in found})
        )
        up = Gauge("txtopo_run_up", "1 while the topology runs, else 0", ["topology"], registry=registry)
        for topology in found:
            up.labels(topology.id).set(is_live(topology.known_run()))
        return generate_latest(registry)

    def health(self) -> dict[str, str]:
        """See :class:`~txtopo.inspect.questions.Backend`."""
        return {topology.id: status_of(topology.known_run())[0] for topology in self._refreshed().values()}

    def cluster(self) -> Cluster:
        """See :class:`~txtopo.inspect.questions.Backend`."""
        raise NotFound("this page is of a folder; 'txtopo ui --cluster' shows a cluster")

    def change(self, slug: str, command: str, settings: Mapping[str, str]) -> Changed:
        """See :class:`~txtopo.inspect.questions.Backend`."""
        del slug, settings
        raise NotFound(f"there is no cluster that could {command} it")

    def close(self) -> None:
        """Close all files."""
        for topology in (*self._known.values(), *self._past.values()):
            topology.close()

    def _find(self, slug: str) -> _Topology:
        of, _, number = slug.partition(OF_RUN)
        found = self._known.get(of)
        if found is None or not found.is_there:
            known = self._refreshed()
            found = known.get(of) or next(
                (topology for topology in known.values() if of in topology.former_slugs()), None
            )
        if found is None:
            raise NotFound(f"there is no topology {of!r} here")
        return found if of == slug else self._find_past(found, slug, number)

    def _find_past(self, topology: _Topology, slug: str, number: str) -> _Topology:
        with self._lock:
            found = self._past.pop(slug, None)  # so that those that nobody looks at come first
            if found is None and _NUMBER.fullmatch(number):
                found = topology.past_run(int(number))
            if found is None:
                raise NotFound(f"there is no run {number!r} of {topology.id!r} here, or it is kept no longer")
            self._past[slug] = found
            while len(self._past) > self.past_open_max:
                self._past.pop(next(iter(self._past))).timeline.close()
            return found

    def _refreshed(self) -> dict[str, _Topology]:
        """Find topologies. Names come from a listing, and never from a request."""
        with self._lock:
            present: set[str] = set()
            for metadata_dir in (self.output.below(METADATA_DIR), self.output):
                folders = [name for name in metadata_dir.folders() if name.startswith(FOLDER_PREFIX)]
                ids = {
                    *topologies_with_snapshot(snapshots_in(metadata_dir)),
                    *topologies_with_journal(metadata_dir),
                    *(urllib.parse.unquote(name.removeprefix(FOLDER_PREFIX)) for name in folders),
                }
                for topology_id in ids - {topology.id for topology in self._known.values()}:
                    self._known[slug_of(topology_id)] = _Topology.of(topology_id, metadata_dir)
                present |= ids
            for slug in [slug for slug, topology in self._known.items() if topology.id not in present]:
                self._known.pop(slug).close()
            return self._known.copy()


QUESTIONS = questions_of(FolderBackend)
"""All questions, each once."""
OF_TRANSACTION = next(question for question in QUESTIONS if question.answer is Transaction)


def find(path: str) -> tuple[Question, str | None] | None:
    """Return the question with a path, and the transaction in it; None if there is no such question."""
    before, is_there, txid = path.partition(OF_TRANSACTION.path.partition("{")[0])
    if is_there and not before:
        return OF_TRANSACTION, txid
    return next(((question, None) for question in QUESTIONS if question.path == path), None)
