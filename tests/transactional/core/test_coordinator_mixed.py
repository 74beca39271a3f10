"""The coordinator of repeatable spouts beside opaque ones: what has begun is kept, and opaque parts are cut anew."""

from typing import Any

from txtopo.errors import PoisonTransaction
from txtopo.testing.scenario import (
    EXHAUSTED,
    Scenario,
    ask,
    begun,
    cancel,
    clean_up,
    commit,
    committed,
    dead_letter_written,
    failed,
    group_ended,
    job_ended,
    limits,
    processed,
    recovered,
    run,
    save,
    stop,
    write_dead_letter,
)
from txtopo.transactional.core.actions import StopReason
from txtopo.transactional.core.spout_policy import MIXED

BEGUN = {"orders": "planned", "clicks": "?"}


def emitted(end: str) -> dict[str, str]:
    """Return what the emitters of the opaque spout say."""
    return {"clicks": end}


def whole(end: str) -> dict[str, Any]:
    """Return the metadata of a transaction that was emitted."""
    return {**BEGUN, "clicks": end}


def begin(story: Scenario, count: int) -> None:
    """Begin transactions, and process all of them in one job."""
    txids = range(1, count + 1)
    (
        story
        >> recovered()
        << ask(1, min(story.coordinator.limits.pending_max, story.coordinator.limits.job_transactions_max))
    )
    story >> begun(*txids, metadata=BEGUN) << save(*txids, metadata=BEGUN)
    story << run(1, *(f"{txid}:1" for txid in txids), metadata=BEGUN)


def test_what_it_begins_with_is_durable_and_what_it_ends_with_is_both() -> None:
    """The opaque part replaces its own only; the next job goes on from both."""
    with Scenario(limits(pending=2, job=1, spout=MIXED)) as story:
        begin(story, 1)
        story >> processed("1:1", emitted("m1"))
        story << commit(1, "1:1", metadata=whole("m1")) << ask(2, 1, previous=whole("m1"))
        story >> job_ended(1)
        story >> begun(2, metadata=BEGUN) << save(2, metadata=BEGUN)
        story << run(2, "2:1", metadata=BEGUN, previous=whole("m1"))


def test_a_roll_back_keeps_what_has_begun() -> None:
    """N and all later ones wait for another job, with what they began with; nobody is asked, and nothing saved."""
    with Scenario(limits(pending=3, job=3, spout=MIXED)) as story:
        begin(story, 3)
        story >> processed("1:1", emitted("m1")) << commit(1, "1:1", metadata=whole("m1"))
        story >> failed("2:1") << cancel(1)
        story >> processed("3:1", emitted("m3"))  # late: it went on from 2:1, which is no more
        story >> job_ended(1) << run(2, "2:2", "3:2", metadata=BEGUN, previous=whole("m1"))


def test_a_failure_in_the_commit_phase_rolls_back_its_followers() -> None:
    """Those of its group too, and an answer of the source that has come since is kept: it went on from what is kept."""
    with Scenario(limits(pending=3, job=3, spout=MIXED)) as story:
        begin(story, 3)
        for txid in (3, 2):
            story >> processed(f"{txid}:1", emitted("m"))
        story >> processed("1:1", emitted("m")) << commit(1, "1:1", "2:1", "3:1", metadata=whole("m"))
        story >> job_ended(1)
        story >> committed("1:1") << clean_up(1) << ask(4, 1, previous=whole("m"))
        story >> failed("2:1") << run(2, "2:2", "3:2", metadata=BEGUN, previous=whole("m"))
        story >> begun(4, metadata=BEGUN, source=EXHAUSTED) << save(4, metadata=BEGUN)
        story >> group_ended(1)
        story >> processed("2:2", emitted("M2")) << commit(2, "2:2", metadata=whole("M2"))
        story >> processed("3:2", emitted("M3"))
        story >> job_ended(2) << run(3, "4:1", metadata=BEGUN, previous=whole("M3"))
        story >> committed("2:2") << clean_up(2)
        story >> group_ended(2) << commit(3, "3:2", metadata=whole("M3"))
        story >> processed("4:1", emitted("M4")) << ask(5, 1, previous=whole("M4"))  # it was exhausted behind 3:1


def test_a_roll_back_takes_the_end_of_the_source_back() -> None:
    """What the opaque spout had is there again when it is cut anew."""
    with Scenario(limits(pending=2, job=1, spout=MIXED)) as story:
        begin(story, 1)
        (
            story
            >> processed("1:1", emitted("m"))
            << commit(1, "1:1", metadata=whole("m"))
            << ask(2, 1, previous=whole("m"))
        )
        story >> job_ended(1)
        story >> begun(source=EXHAUSTED)
        story >> failed("1:1") << run(2, "1:2", metadata=BEGUN, previous=None)
        story >> group_ended(1)
        (
            story
            >> processed("1:2", emitted("M"))
            << commit(2, "1:2", metadata=whole("M"))
            << ask(2, 1, previous=whole("M"))
        )
        story >> begun(source=EXHAUSTED)
        story >> job_ended(2)
        story >> committed("1:2") << clean_up(1)
        story >> group_ended(2) << stop(StopReason.EXHAUSTED)


def test_a_new_leader_has_what_has_begun() -> None:
    """It emits all of it again, from where the last committed one ended."""
    with Scenario(limits(pending=2, job=2, spout=MIXED)) as story:
        event = recovered(7, 8, 9, epoch=2, metadata=whole("m7"))
        story >> event << run(1, "8:1@2", "9:1@2", previous=whole("m7"))


def test_a_given_up_one_that_follows_is_tried_again() -> None:
    """2 was given up behind 1, and waits for its turn; then 1 fails in the commit phase, and 2 may hold others now."""
    with Scenario(limits(pending=2, job=2, tries=2, skip=True, spout=MIXED)) as story:
        begin(story, 2)
        story >> processed("1:1", emitted("m1")) << commit(1, "1:1", metadata=whole("m1"))
        for tries, job in ((1, 1), (2, 2)):
            story >> failed(f"2:{tries}", metadata=emitted("m2"))
            story >> job_ended(job)
            if job == 1:
                story << run(2, "2:2", metadata=BEGUN, previous=whole("m1"))
        story >> failed("1:1") << run(3, "1:2", "2:3", metadata=BEGUN, previous=None)
        story >> group_ended(1)
        story >> processed("1:2", emitted("M1")) << commit(2, "1:2", metadata=whole("M1"))
        story >> failed("2:3", metadata=emitted("M2"))
        story >> job_ended(3)
        story >> committed("1:2") << clean_up(1) << ask(3, 1, previous=whole("M2"))
        story >> group_ended(2) << write_dead_letter(3, "2:4", tries=3, metadata=whole("M2"))
        story >> dead_letter_written("2:4") << clean_up(2)


def test_it_is_skipped_only_if_its_end_is_known() -> None:
    """Else those behind it would not know where to begin, whichever spout has failed."""
    with Scenario(limits(pending=1, tries=1, skip=True, spout=MIXED)) as story:
        begin(story, 1)
        story >> failed("1:1", "bad record") << cancel(1)
        assert isinstance(story.take_stop().error, PoisonTransaction)
