"""A growing folder, the coordinators that watch it one after another, and what they should have taken."""

import json
import os
from collections import Counter
from pathlib import Path

import attrs

from spouts.files.spout import FilesTransactionalSpout
from spouts.files.taken_log import FileLog, LogPlace
from state.stores.memory import MemoryPlace, MemoryStore
from tests.transactional.recovery.crashes import CrashError, CrashingLead, Fuse
from txtopo.attempts import TransactionAttempt
from txtopo.testing.collector import RecordingCollector
from txtopo.testing.context import PlainContext

TOPOLOGY, ROOT = "topology", "topology/source"
SETTLE_SECS = 2.0


@attrs.define
class HandClock:
    """Tells the time that it was set to."""

    secs: float = 1000.0

    def __call__(self) -> float:
        return self.secs


@attrs.define(eq=False)
class Growing:
    """A folder, a store that outlives processes, the metadata that was saved, and one coordinator at a time."""

    folder: Path
    options: dict = attrs.field(factory=dict)
    watch: bool = True
    make_store: object = None
    place: MemoryPlace = attrs.field(factory=MemoryPlace)
    clock: HandClock = attrs.field(factory=HandClock)
    spent: HandClock = attrs.field(factory=HandClock)
    """The processor time that listings have taken."""
    saved: list = attrs.field(factory=list)
    others: int = 0
    """How many transactions had only input of another spout."""
    committed: int = 0
    lines: Counter = attrs.field(factory=Counter)
    """What was emitted by the transactions that are committed."""
    taken: Counter = attrs.field(factory=Counter)
    """What was there to emit when metadata was saved."""
    coordinator: object = None
    fuse: Fuse = attrs.field(factory=Fuse)
    _store: object = None
    _lead: object = None

    @property
    def spout(self):
        """The spout, as its topology has it."""
        spout = FilesTransactionalSpout(
            self.folder, watch=self.watch, settle_secs=SETTLE_SECS, now_secs=self.clock, **self.options
        )
        if self.watch:
            spout.watch = attrs.evolve(spout.watch, spent_secs=self.spent)
        return spout

    def write(self, name, content, mtime_secs=None):
        """Write a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        if mtime_secs is not None:
            os.utime(path, (mtime_secs, mtime_secs))
        return path

    def start(self, fuse=None):
        """Start a coordinator, which takes the lead from the one before."""
        self.fuse = fuse or Fuse()
        self.coordinator = self.spout.coordinator({}, PlainContext())
        self.place.forget_holder(TOPOLOGY)
        self._store = MemoryStore(self.place)
        self._lead = self._store.take_lead(TOPOLOGY, "test")
        self.coordinator.open_store(self._store, CrashingLead(self._lead, self.fuse), ROOT)
        self.coordinator.resume(*((len(self.saved) + self.others, self.saved[-1]) if self.saved else (0, None)))
        self.coordinator.cleanup_before(self.committed + 1)
        return self.coordinator

    def wait(self, secs=SETTLE_SECS):
        """Let time pass, with a look at its beginning and one at its end."""
        self.clock.secs += 1.0
        self.coordinator.is_ready()
        self.clock.secs += secs
        return self.coordinator.is_ready()

    def begin(self):
        """Begin a transaction and save its metadata, if the coordinator is ready."""
        if not self.coordinator.is_ready():
            return False
        txid = len(self.saved) + self.others + 1
        previous = self.saved[-1] if self.saved else None
        metadata = json.loads(json.dumps(self.coordinator.initialize_transaction(txid, previous)))
        self.fuse.step(lambda: self._save(metadata))
        return True

    def _save(self, metadata):
        self.saved.append(metadata)
        self.taken.update(self.emitted(metadata))

    def commit(self, count=None):
        """Emit and commit transactions that are begun: all of them, or so many."""
        last = len(self.saved) if count is None else min(len(self.saved), self.committed + count)
        for txid in range(self.committed + 1, last + 1):
            self.lines.update(self.emitted(self.saved[txid - 1]))
            self.committed = txid
        self.coordinator.cleanup_before(self.committed + 1)

    def rewind(self, txid, *, is_moved=False):
        """Go back to a transaction, as ``txtopo rewind`` does; the lines of the later ones are undone.

        Where the folder was moved, nobody can say which these were: then lines are counted from here on.
        """
        undone = self.saved[txid:]
        coordinator = self.spout.coordinator({}, PlainContext())
        coordinator.open_store(self._store, self._lead, ROOT)
        assert coordinator.rewind(txid, self.saved[txid - 1] if txid else None, undone)
        del self.saved[txid:]
        self.committed = min(self.committed, txid)
        for metadata in () if is_moved else undone:
            self.lines.subtract(self.emitted(metadata))
        self.lines = Counter() if is_moved else self.lines + Counter()

    def forgo(self, *names):
        """Go on without owed files, as ``txtopo forgo`` does."""
        coordinator = self.spout.coordinator({}, PlainContext())
        coordinator.open_store(self._store, self._lead, ROOT)
        metadata = self.saved[-1] if self.saved else None
        return coordinator.forgo(len(self.saved) + self.others, metadata, [f"{self.folder}/{name}" for name in names])

    def is_admitted(self, name):
        """Whether the log in the store has a name."""
        return name in FileLog(LogPlace(self._store, self._lead, ROOT))

    def emitted(self, metadata):
        """Return the lines of a transaction."""
        attempt = TransactionAttempt(1, 1)
        collector = RecordingCollector(attempt, self.spout.output_fields)
        self.spout.emitter({}, PlainContext()).emit_batch(attempt, metadata, collector)
        return [values[1] for values in collector.tuples]

    def drain(self):
        """Let everything settle, take it and commit it."""
        while True:
            if self.watch:
                self.wait()
            if not self.begin():
                self.commit()
                return self.lines
            while self.begin():
                pass
            self.commit()


__all__ = ["CrashError", "Fuse", "Growing", "HandClock"]
