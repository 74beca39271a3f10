"""The transition table of a transaction.

::

    READY ──start──▶ PROCESSING ──processed──▶ PROCESSED ──commit──▶ COMMITTING ──committed──▶ COMMITTED
      ▲                  │fail                     │fail   ◀─return──    │fail                     ▲
      ├──────────────────┴─────────────────────────┴─────────────────────┘                         │
      └──give up──▶ DEAD ──write dead letter──▶ WRITING_DEAD_LETTER ──committed────────────────────┘
                     ▲────────fail, return──────────────┘

Beside repeatable spouts, a failure of an opaque one's transaction rolls back those that follow: from PROCESSING,
PROCESSED, COMMITTING and DEAD they go back to READY. A pair that is not in the table is a bug of txtopo.
"""

from __future__ import annotations

import enum

from txtopo.errors import InternalError


class Status(enum.Enum):
    """The status of a begun transaction."""

    __hash__ = object.__hash__  # 30 look-ups per transaction: 0.04 µs each, but 0.13 µs with Enum's __hash__

    READY = "ready"
    """Its metadata is known, and it has no live attempt."""
    PROCESSING = "processing"
    """Its live attempt is in a job."""
    PROCESSED = "processed"
    """Its live attempt waits for its turn to commit."""
    COMMITTING = "committing"
    """Its live attempt is in the commit group in flight."""
    DEAD = "dead"
    """It failed as often as allowed and waits for its turn to be given up."""
    WRITING_DEAD_LETTER = "writing dead letter"
    """Its dead letter is being written."""
    COMMITTED = "committed"
    """It is done, and no longer pending."""


class Trigger(enum.Enum):
    """The cause of a transition."""

    __hash__ = object.__hash__  # as above

    START = "start"
    PROCESSED = "processed"
    FAIL = "fail"
    COMMIT = "commit"
    RETURN = "return"
    """The group ended before the transaction's turn."""
    COMMITTED = "committed"
    GIVE_UP = "give up"
    WRITE_DEAD_LETTER = "write dead letter"
    ROLL_BACK = "roll back"
    """It follows one that failed, and goes on from another end of it."""


TRANSITIONS: dict[tuple[Status, Trigger], Status] = {
    (Status.READY, Trigger.START): Status.PROCESSING,
    (Status.READY, Trigger.GIVE_UP): Status.DEAD,
    (Status.PROCESSING, Trigger.PROCESSED): Status.PROCESSED,
    (Status.PROCESSING, Trigger.FAIL): Status.READY,
    (Status.PROCESSED, Trigger.COMMIT): Status.COMMITTING,
    (Status.PROCESSED, Trigger.FAIL): Status.READY,
    (Status.COMMITTING, Trigger.COMMITTED): Status.COMMITTED,
    (Status.COMMITTING, Trigger.RETURN): Status.PROCESSED,
    (Status.COMMITTING, Trigger.FAIL): Status.READY,
    (Status.DEAD, Trigger.WRITE_DEAD_LETTER): Status.WRITING_DEAD_LETTER,
    (Status.WRITING_DEAD_LETTER, Trigger.COMMITTED): Status.COMMITTED,
    (Status.WRITING_DEAD_LETTER, Trigger.FAIL): Status.DEAD,
    (Status.WRITING_DEAD_LETTER, Trigger.RETURN): Status.DEAD,
    (Status.PROCESSING, Trigger.ROLL_BACK): Status.READY,
    (Status.PROCESSED, Trigger.ROLL_BACK): Status.READY,
    (Status.COMMITTING, Trigger.ROLL_BACK): Status.READY,
    (Status.DEAD, Trigger.ROLL_BACK): Status.READY,
}

LIVE = frozenset({Status.PROCESSING, Status.PROCESSED, Status.COMMITTING, Status.WRITING_DEAD_LETTER})
"""The statuses with a live attempt."""


def after(status: Status, trigger: Trigger) -> Status:
    """Return the status that ``trigger`` leads to; raise an InternalError if the table has no such transition."""
    target = TRANSITIONS.get((status, trigger))
    if target is None:
        raise InternalError(f"no transition {trigger.value!r} from status {status.value!r}")
    return target
