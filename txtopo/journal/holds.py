"""Holds: what backfills need of a topology's past while they run, as each says in its own folder.

A coordinator looks there now and then, and keeps it. A backfill says it again as long as it runs, so the hold of one
that died ends by itself.
"""

from __future__ import annotations

import contextlib
import json
import time

import attrs

from txtopo.files.folder import Folder
from txtopo.files.records import DAMAGE, from_json, to_json
from txtopo.journal.backfills import backfills_in

HOLD_SECS = 3600
"""How long a hold stands after it was said."""

SAID_AGAIN_SECS = 60
"""How often it is said again: a small file a minute, and long before the hold ends."""

_FILE = "hold.json"


@attrs.frozen
class Hold:
    """What a backfill needs."""

    after: int
    """The journal's transactions after this one."""
    until_ms: int
    """When the hold ends, in milliseconds since 1970."""
    wish: int | None = None
    """The transaction that the backfill was to begin with; None if it was to begin with the first one."""
    point: int | None = None
    """The transaction whose versions of the tables it copies; None if it has them."""


@attrs.define(eq=False)
class BackfillHold:
    """The hold of one backfill, in its folder."""

    folder: Folder
    _said_secs: float = -SAID_AGAIN_SECS

    def current(self) -> Hold | None:
        """Return what was said last; None if nothing was."""
        with contextlib.suppress(FileNotFoundError, *DAMAGE):
            return from_json(json.loads(self.folder.get(_FILE)), Hold)
        return None

    def begin(self, after: int, wish: int | None, point: int | None) -> None:
        """Say what is needed from now on."""
        self._said_secs = time.monotonic()
        hold = Hold(after, int((time.time() + HOLD_SECS) * 1000), wish, point)
        # Not durable: a power failure ends the backfill as well.
        self.folder.put(_FILE, json.dumps(to_json(hold)).encode(), is_durable=False)

    def go_on(self, after: int) -> None:
        """Say again what is needed, unless that was said just now; the copies are made."""
        if time.monotonic() - self._said_secs >= SAID_AGAIN_SECS:
            hold = self.current()
            self.begin(after, None if hold is None else hold.wish, None)

    def end(self) -> None:
        """Take back what was said."""
        self.folder.delete(_FILE)


def holds_in(metadata_dir: Folder, topology_id: str, now_ms: int) -> list[Hold]:
    """Return the holds on a topology's past that stand at a time, in milliseconds since 1970."""
    backfills = backfills_in(metadata_dir, topology_id)
    holds = [BackfillHold(backfills.below(name)).current() for name in backfills.folders()]
    return [hold for hold in holds if hold is not None and hold.until_ms > now_ms]
