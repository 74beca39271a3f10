"""The store without a server: objects in a bucket, by conditional puts alone.

Below the address, each topology has a folder::

    <topology>/log/<number>   one write each, put only if the name is free
    <topology>/base           the values after some entry, replaced only if it is the one that was read

Whoever has put entry N+1 has written after entry N, and nobody else has. A lead is a run of entries of one epoch:

1. *Taking the lead* is an entry with the next epoch. The entry that the former leader would write next has its name
   now.
2. *Every write* is the next entry. The store refuses it if somebody has put one by that name.
3. *A heartbeat* is an empty entry, put by a leader that had nothing to write for a third of its ``lease_secs``.

Time decides only when a lead may be contended, never who has it. A contender that finds a holder waits as long as the
holder's lease, by its own clock, and gives up as soon as another entry comes. It is not refused earlier, since the
holder may have been killed, unless it runs on the same machine and is gone from there. Clocks are never compared.

The log is cut: after some hundred entries the leader replaces the base and then removes the entries that are in it. A
reader reads the base, then entry by entry until there is none, then asks whether the base is still the one: no listing
is needed, which may be late.

Why the first entry of each lead stays (a *fence*):

1. A leads with epoch 4, has written entry 7, and is stopped before it sends entry 8.
2. B takes the lead: entry 8 has epoch 5. B writes on, replaces the base by one after entry 300, and removes the entries
   up to there.
3. A wakes up and sends its entry 8. Were the name free, the store would take it, and A would believe that it leads. The
   fence has the name.

Why a contender looks at the base once more when it has put its entry:

1. B has read entry 7, the last one, and is stopped before it puts entry 8 to take the lead.
2. A writes entries 8 to 300, replaces the base, and removes the entries up to there.
3. B wakes up and puts entry 8, whose name is free. The base is after entry 300, so B's entry counts for nothing, and B
   begins again. Nobody reads it; the next leader removes it.

An answer may be lost. The same entry is then sent again, and if there is one by its name, compared with it, until it is
known who has the name: two different entries of one number never come from one leader.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import attrs

from state.stores.holder import Holder, loss, refusal
from state.stores.memory import names_below
from state.stores.paths import checked_changes, checked_path, checked_topology_id
from state.stores.replica import Base, Entry, Replica, Term
from txtopo.api.arguments import checked_arguments
from txtopo.api.store import Change, Lead, Store
from txtopo.errors import ConfigError, LostLead, StopError
from txtopo.files.durable import in_background
from txtopo.files.objects import ObjectFolder, Version
from txtopo.files.places import file_name

_READ_MAX = 16
"""How many entries are asked for at a time by whoever reads the log from its base on."""

_LOOK_SECS = 0.2
"""How often a contender looks whether the holder writes."""

_PAUSES_SECS = (0.1, 0.3, 1.0)
"""The pauses between tries, the last one again and again."""

_PROBE, _PROBE_SECS = "probe-", 24 * 3600.0
"""How the name of a probe's object begins, and how long one stays that was not removed: longer than clocks differ."""

logger = logging.getLogger("txtopo")

T = TypeVar("T")


class ObjectStore(Store):
    """A store in a bucket of S3, Azure Blob Storage, Google Cloud Storage or what is compatible; safe for threads.

    Nothing else has to run. A write is one conditional put; so is a heartbeat each third of ``lease_secs`` in which
    nothing is written.

    Args:
        address: such as ``s3://bucket/folder``; nothing else may write below it.
        options: those of tables in object stores; None: from the environment.
        lease_secs: how long another machine's coordinator is silent before its lead may be taken, in seconds, and how
            long a write is tried.

    Raises:
        ConfigError: ``lease_secs`` is not above 0; later, the address is none, or, when a lead is taken, the store
            takes a put that it should refuse.
        StopError: later, the store can't be reached.
    """

    @checked_arguments
    def __init__(self, address: str, options: Mapping[str, str] | None = None, lease_secs: float = 10.0) -> None:
        if lease_secs <= 0:
            raise ConfigError(f"lease_secs is {lease_secs!r}; give a number of seconds above 0")
        self.lease_secs = lease_secs
        self._address = address.rstrip("/")
        self._folder = ObjectFolder(self._address, tuple((options or {}).items()))
        self._logs: dict[str, _Log] = {}
        self._leads: list[ObjectLead] = []
        self._lock = threading.Lock()

    def read(self, path: str) -> bytes | None:
        """Return the value at ``path``, or None."""
        topology_id = checked_path(path).partition("/")[0]
        with self._current(topology_id) as replica:
            return replica.values.get(path)

    def children(self, path: str) -> list[str]:
        """Return the sorted names directly below ``path`` (``""``: the topology ids)."""
        if path:
            with self._current(checked_path(path).partition("/")[0]) as replica:
                return names_below(replica.values, path)
        names = []
        with _naming_errors(self._address):
            for name in self._folder.folders():
                replica = _Log(self._folder, name).follow()
                if replica.term is not None and replica.values:
                    names.append(replica.term.topology_id)
        return sorted(names)

    def take_lead(self, topology_id: str, owner: str, epoch_min: int = 1) -> ObjectLead:
        """Take the lead of a topology, and increment its epoch; see :meth:`Store.take_lead`.

        If somebody holds it, this waits until that process shows that it is alive, at most for its lease.
        """
        # A log of its own: its lock is held while it waits, and the holder may be another thread of this process.
        log = _Log(self._folder, file_name(checked_topology_id(topology_id)))
        holder = Holder.of_this_process(owner, self.lease_secs)
        with _naming_errors(self._address):
            _probe(self._folder)
            while True:
                log.follow()
                _wait_for_lead(log)
                before = log.replica.term
                term = Term(topology_id, max(1 if before is None else before.epoch + 1, epoch_min), holder)
                if log.put(Entry(term), self.lease_secs) and log.counts():
                    break
                log = _Log(self._folder, log.name)
        lead = ObjectLead(log, term, self.lease_secs)
        with self._lock:
            self._leads.append(lead)
            self._logs[topology_id] = log
        return lead

    def close(self) -> None:
        """Release the leads that were taken here."""
        for lead in self._leads:
            lead.release()

    @contextlib.contextmanager
    def _current(self, topology_id: str) -> Iterator[Replica]:
        with self._lock:
            log = self._logs.setdefault(topology_id, _Log(self._folder, file_name(topology_id)))
        with _naming_errors(self._address), log.lock:
            yield log.replica if log.is_led else log.follow()


def _probe(folder: ObjectFolder) -> None:
    """Refuse a store that does not compare: two coordinators on it would both write."""
    name, first, second = f"{_PROBE}{uuid.uuid4().hex}", b"1", b"2"
    version = folder.replace(name, first, None)
    try:
        was_overwritten = folder.put_if_absent(name, second)
        folder.put(name, second)
        stale = folder.replace(name, first, version) is not None
    finally:
        folder.delete(name)
    if was_overwritten or stale:
        lacking = "a put of a name that is taken (If-None-Match)" if was_overwritten else "a stale put (If-Match)"
        raise ConfigError(
            f"{folder} takes {lacking}, so two coordinators could both write there; use another store, or keep the "
            "coordinator state in ZooKeeper"
        )


def _wait_for_lead(log: _Log) -> None:
    """Return once nobody holds the lead, or its holder is gone or silent for its lease; AlreadyRunning if it writes."""
    number, term = log.replica.number, log.replica.term
    if term is None:
        return
    deadline = time.monotonic() + term.holder.session_timeout_secs
    while not term.is_over and term.holder.is_alive() is not False and time.monotonic() < deadline:
        time.sleep(min(_LOOK_SECS, term.holder.session_timeout_secs / 10))
        now = log.follow()
        assert now.term is not None, "it was there"
        if now.number > number and not now.term.is_over:
            raise refusal(term.topology_id, now.term.holder)
        term = now.term


@contextlib.contextmanager
def _naming_errors(address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StopError(f"the store of the coordinator state, {address}, can't be reached: {error}") from error


@attrs.define(eq=False)
class _Log:
    """The log of one topology, as far as this process has read or written it. Callers hold its lock."""

    folder: ObjectFolder
    name: str
    """Of its folder in that one."""
    replica: Replica = attrs.field(factory=Replica)
    base_version: Version | None = None
    is_led: bool = False
    """Whether nobody else can have written, as far as this process knows."""
    lock: threading.RLock = attrs.field(factory=threading.RLock)

    @property
    def base_path(self) -> str:
        return f"{self.name}/base"

    def path_of(self, number: int) -> str:
        """Return the path of an entry."""
        return f"{self.name}/log/{number:020d}"

    def follow(self) -> Replica:
        """Read on to the end of the log, as it was at one moment of this call."""
        while True:
            first = self.replica.number
            self._read_on()
            # Entries are removed only once a base has them. If the base is not beyond where this began, no name after
            # that has been free again, which a late request may take, and the missing entry has never been there.
            if self.folder.version(self.base_path) == self.base_version:
                return self.replica
            base = self._read_base()
            if base is None or base.number <= first:
                return self.replica
            self.replica = base

    def counts(self) -> bool:
        """Whether the entry that was put last counts: a base that has its number is of another one by that name."""
        base = self._read_base()
        return base is None or base.number < self.replica.number

    def _read_base(self) -> Replica | None:
        answer = self.folder.read(self.base_path)
        if answer is None:
            return None
        content, self.base_version = answer
        return Replica.from_bytes(content)

    def put(self, entry: Entry, secs: float) -> bool:
        """Put the next entry, and apply it; return False if somebody else has put one by its name.

        Raises:
            OSError: the store has not answered for ``secs``, and it is not known whether it has the entry.
        """
        path, content = self.path_of(self.replica.number + 1), self.replica.next(entry)
        if not _tried(lambda: self._is_put(path, content), secs):
            return False
        self.replica.apply(entry, len(content))
        return True

    def _is_put(self, path: str, content: bytes) -> bool:
        if self.folder.put_if_absent(path, content):
            return True
        try:
            return self.folder.get(path) == content
        except FileNotFoundError:
            return False  # it was there, and has been removed since: somebody is far beyond it

    def _read_on(self) -> None:
        """Apply the entries that come next: one, if it is there, then several at a time."""
        count = 1
        while True:
            first = self.replica.number + 1
            reads = [in_background(functools.partial(self._entry, number)) for number in range(first, first + count)]
            for answer in reads:
                content = answer()
                if content is None:
                    return
                self.replica.apply(Entry.from_bytes(content), len(content))
            count = _READ_MAX

    def _entry(self, number: int) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return self.folder.get(self.path_of(number))
        return None


class ObjectLead(Lead):
    """The lead of a topology in an object store; made by :meth:`ObjectStore.take_lead`."""

    def __init__(self, log: _Log, term: Term, lease_secs: float) -> None:
        self._log = log
        self._term = term
        self._lease_secs = lease_secs
        self._lost: LostLead | None = None
        self._in_doubt: Entry | None = None
        self._written = time.monotonic()
        self._ended = threading.Event()
        log.is_led = True
        self._is_cutting = True
        self._cutting: Callable[[], None] = in_background(self._remove_orphans)
        threading.Thread(target=self._beat, name="txtopo-lease", daemon=True).start()

    @property
    def epoch(self) -> int:
        """The epoch: one more than that of the last lead, unless a higher one was requested."""
        return self._term.epoch

    def write(self, changes: Sequence[Change]) -> None:
        """Apply all changes in order, as one entry; see :meth:`Lead.write`.

        Raises:
            LostLead: another process has taken the lead since.
            StopError: the store has not answered for the lease; the changes may have been applied.
        """
        changes = checked_changes(self._term.topology_id, changes)
        with self._log.lock:
            if self._lost is not None:
                raise self._lost
            self._put(Entry(self._term, tuple(changes)))
            if self._log.replica.is_far_from_its_base and not self._is_cutting:
                self._is_cutting = True
                self._cutting = in_background(functools.partial(self._cut, self._log.replica.base()))
            waits = self._log.replica.is_too_far_from_its_base
        if waits:
            self._cutting()

    def is_held(self) -> bool:
        """Whether no write or heartbeat has found that a later lead was taken, and this one was not released."""
        return self._lost is None

    def release(self) -> None:
        """Give up the lead; a second call does nothing. If the store can't be reached, the lead ends with its lease."""
        self._ended.set()
        with self._log.lock:
            if self._lost is None:
                with contextlib.suppress(StopError):
                    self._put(Entry(attrs.evolve(self._term, is_over=True)))
                self._lose(self.epoch)
        self._cutting()

    def _put(self, entry: Entry) -> None:
        """Put an entry, and before it the one of which it is not known whether the store has it."""
        with _naming_errors(str(self._log.folder)):
            for each in [self._in_doubt, entry] if self._in_doubt is not None else [entry]:
                self._in_doubt = each
                if not self._log.put(each, self._lease_secs):
                    term = self._log.follow().term
                    raise self._lose(None if term is None else term.epoch)
                self._in_doubt = None
        self._written = time.monotonic()

    def _lose(self, stored: int | None) -> LostLead:
        self._log.is_led = False
        self._ended.set()
        self._lost = loss(self._term.topology_id, self.epoch, stored)
        return self._lost

    def _beat(self) -> None:
        """Write nothing each third of the lease in which nothing else was written, until the lead ends."""
        every_secs = self._lease_secs / 3
        while not self._ended.wait(max(every_secs / 10, self._written + every_secs - time.monotonic())):
            with contextlib.suppress(StopError), self._log.lock:
                if self._lost is None and time.monotonic() - self._written >= every_secs:
                    self._put(Entry(self._term))

    def _cut(self, base: Base) -> None:
        """Replace the base, and remove the entries that are in it.

        1. A crash before the base is replaced leaves all as it is.
        2. A crash after that leaves entries that nobody reads; the next leader removes them.
        """
        log, content = self._log, base.to_bytes()
        former, since_bytes = log.replica.base_number, log.replica.since_bytes
        with self._cutting_once():
            version = log.folder.replace(log.base_path, content, log.base_version)
            if version is None:
                # Its answer was lost, or that of an earlier one; or a later leader has replaced it.
                base_answer = log.folder.read(log.base_path)
                if base_answer is None or base_answer[0] != content:
                    log.base_version = None if base_answer is None else base_answer[1]
                    return
                version = base_answer[1]
            with log.lock:
                log.base_version = version
                log.replica.base_number, log.replica.base_bytes = base.number, len(content)
                log.replica.since_bytes -= since_bytes
            self._remove(range(former + 1, base.number + 1), base.fences)

    def _remove_orphans(self) -> None:
        """Remove the entries that a base has, and that a leader has left that was killed when it had replaced it.

        And the object of a probe that was killed, once it is old enough to be nobody's.
        """
        if not self._log.replica.base_number:  # it has not cost much yet
            self._is_cutting = False
            return
        with self._cutting_once():
            folder = self._log.folder
            for item in folder.list():
                if item.path.startswith(_PROBE) and time.time() - item.modified_secs > _PROBE_SECS:
                    folder.delete(item.path)
            self._remove(map(int, folder.names(f"{self._log.name}/log")), self._log.replica.fences)

    def _remove(self, numbers: Iterable[int], fences: Collection[int]) -> None:
        kept_fences = set(fences)
        for number in numbers:
            if number <= self._log.replica.base_number and number not in kept_fences:
                self._log.folder.delete(self._log.path_of(number))

    @contextlib.contextmanager
    def _cutting_once(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            logger.warning("the log of the coordinator state in %s is not cut now: %s", self._log.folder, error)
        finally:
            self._is_cutting = False


def _tried(work: Callable[[], T], secs: float) -> T:
    """Do something again and again while the store does not answer, for so many seconds."""
    deadline = time.monotonic() + secs
    for pause_secs in itertools.chain(_PAUSES_SECS, itertools.repeat(_PAUSES_SECS[-1])):
        try:
            return work()
        except OSError:
            if time.monotonic() + pause_secs > deadline:
                raise
        time.sleep(pause_secs)
    raise AssertionError("the pauses have no end")
