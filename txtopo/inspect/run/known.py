"""What is known of a topology at one moment, and what that makes of its status."""

from __future__ import annotations

import time

import attrs

from txtopo.assembly.snapshot import WHY_DEAD, Snapshot, Writer
from txtopo.engine.timeline.records import DRIVER, RunRecord
from txtopo.inspect.past.story import SILENT_SECS
from txtopo.inspect.run.slugs import OF_RUN, slug_of
from txtopo.inspect.timeline.timeline import CLOCKS_US, TimelineReader
from txtopo.text.words import duration
from txtopo.transactional.core.actions import StopReason

_ORDERLY = {reason.value for reason in StopReason} - {StopReason.FAILED.value}


@attrs.frozen
class KnownRun:
    """What is known of a topology at one moment."""

    id: str
    timeline: TimelineReader
    run: RunRecord | None
    writer: Writer | None
    snapshot: Snapshot | None
    past: int | None = None
    """The number of an earlier run, if it is one; None: it is the last one."""
    undone_to: int | None = None
    """The transaction to which a command has brought the topology back since; None if none has."""
    damage: str = ""
    """Why the snapshot can't be read, if it can't."""

    @property
    def slug(self) -> str:
        """The slug of the topology, or of its earlier run."""
        return slug_of(self.id) if self.past is None else f"{slug_of(self.id)}{OF_RUN}{self.past}"

    @property
    def is_plain(self) -> bool:
        """Whether it is a plain topology."""
        return self.run is not None and self.run.kind == "plain"

    @property
    def last_writer(self) -> Writer | None:
        """The process of the last run: that of the snapshot, unless a later run has only begun."""
        if self.run is None or (self.writer is not None and self.writer.epoch >= self.run.writer.epoch):
            return self.writer
        return self.run.writer

    @property
    def is_starting(self) -> bool:
        """Whether the last run has no snapshot yet."""
        return not self.is_plain and self.last_writer is not self.writer and not self.damage

    @property
    def stage(self) -> str:
        """What the last run does before its run loop begins."""
        return "" if self.run is None else self.run.stage

    @property
    def ended(self) -> str:
        """Why the last run has ended; empty while it runs."""
        if self.run is not None and self.last_writer is not None and self.run.writer.epoch == self.last_writer.epoch:
            of_run = self.run.ended
        else:
            of_run = ""
        return of_run or ("" if self.snapshot is None or self.is_starting else self.snapshot.ended)

    @property
    def is_failed(self) -> bool:
        """Whether that was an error."""
        if self.run is not None and self.run.ended:
            return self.run.is_failed
        return bool(self.ended) and self.ended not in _ORDERLY

    @property
    def updated_secs(self) -> float | None:
        """When the last run has last said something."""
        writer = self.last_writer
        times = [] if writer is None else [writer.written_secs]
        times += [int(row["at"]) / 1e6 for row in self.timeline.last(DRIVER).values()]
        # What was said before somebody set the clock back is of the future; what was said since is newer.
        now = time.time() + CLOCKS_US / 1e6
        return max((secs for secs in times if secs <= now), default=max(times, default=None))


def status_of(known: KnownRun) -> tuple[str, str]:
    """Return the status of a topology in a word, and in a sentence."""
    writer, updated = known.last_writer, known.updated_secs
    if writer is None or updated is None:
        return "unknown", "no run has recorded what it does"
    age_secs = max(0.0, time.time() - updated)
    if known.ended:
        word = "failed" if known.is_failed else "ended"
        return word, f"{word} {duration(age_secs)} ago: {known.ended}"
    if known.past is not None:
        return "killed", f"it gave its last sign {duration(age_secs)} ago, and another run has taken its place since"
    alive = writer.is_alive
    if alive is False:
        return ("killed", f"process {writer.pid} is dead: {WHY_DEAD}; the one before is {duration(age_secs)} old")
    if age_secs > SILENT_SECS + writer.every_secs:
        where = "it is alive" if alive else f"it is on {writer.host}, so this machine can't see whether it is alive"
        return "silent" if alive else "unknown", f"silent: its last report is {duration(age_secs)} old; {where}"
    if known.is_starting or (known.is_plain and known.stage):
        return "starting", known.stage or "the run loop begins"
    return "running", f"running, as of {age_secs:.1f} s ago"


def is_live(known: KnownRun) -> bool:
    """Whether the topology runs, as far as this machine can see."""
    return status_of(known)[0] in {"running", "starting", "silent"}


def now_of(known: KnownRun) -> float:
    """Return the end of what is still open: now while the topology runs, else when it has last said something."""
    return time.time() if is_live(known) else known.updated_secs or time.time()
