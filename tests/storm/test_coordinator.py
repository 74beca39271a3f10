"""Storm's ``test-coordinator`` (transactional_test.clj), event by event.

Storm's script: four transactions may be pending; a new transaction's metadata is the spout's state, 10 at first
and 12 later, and while it is nil nothing is ready. Jobs and groups of one mirror Storm's single emissions:
``batch`` stands for a tuple on Storm's batch stream, ``commit`` for one on its commit stream.

What is better here, and so reads otherwise:

- Storm replays a failed transaction *and all later ones*. This spout is repeatable, so N is replayed alone and
  later ones keep their work (promise 5).
- Storm draws attempt ids at random. Here they rise: 2:1, 2:2 and so on.
- A late failure makes Storm drop the live attempt. Here it changes nothing (promise 3).
"""

from txtopo.testing.scenario import (
    WAITING,
    Scenario,
    ask,
    begun,
    clean_up,
    commit,
    committed,
    failed,
    group_ended,
    job_ended,
    limits,
    processed,
    recovered,
    run,
    save,
    ticked,
)
from txtopo.transactional.core.actions import Process


def test_coordinator() -> None:
    """Storm's whole script: its emissions stand above each event, and which promise asks for a difference."""
    with Scenario(limits(pending=4, job=1, group=1, jobs=4)) as story:
        # (reset! coordinator-state 10) (.nextTuple)  ⇒  BATCH [1 10] [2 10] [3 10] [4 10]
        _begin_four(story)
        # (.nextTuple)  ⇒  nothing: four are pending
        story >> ticked(10)

        # (.fail second)  ⇒  Storm: BATCH 2 3 4.  Here 2 alone: promise 5, once a job's slot is free
        story >> failed("2:1")
        story >> job_ended(2) << _batch(5, "2:2", 10)
        # (.ack new-second)  ⇒  nothing: 1 comes first
        story >> processed("2:2")
        story >> job_ended(5)
        # (.ack first)  ⇒  COMMIT 1
        story >> processed("1:1") << commit(1, "1:1", metadata=10)
        story >> job_ended(1)

        # (reset! coordinator-state 12) (.ack commit)  ⇒  COMMIT 2, BATCH [5 12]
        story >> committed("1:1") << clean_up(1) << ask(5, 1, previous=10)
        story >> group_ended(1) << commit(2, "2:2", metadata=10)
        story >> begun(5, metadata=12) << save(5, metadata=12) << _batch(6, "5:1", 12)
        # (reset! coordinator-state nil) (.ack commit)  ⇒  nothing: 3 is not processed, the spout not ready
        story >> committed("2:2") << clean_up(2) << ask(6, 1, previous=12)
        story >> begun(source=WAITING) << ask(6, 1, previous=12)
        story >> group_ended(2)

        # (.fail 3)  ⇒  Storm: BATCH 3 4 5.  Here 3 alone: promise 5
        story >> failed("3:1") << _batch(7, "3:2", 10)
        story >> job_ended(3)
        # (reset! coordinator-state 12) (.nextTuple)  ⇒  BATCH [6 12]
        story >> ticked(60)
        story >> begun(6, metadata=12) << save(6, metadata=12) << _batch(8, "6:1", 12, previous=12)

        # (.ack 3)  ⇒  COMMIT 3
        story >> processed("3:2") << commit(3, "3:2", metadata=10)
        story >> job_ended(7)
        # (.ack 4)  ⇒  nothing: 3 is not committed
        story >> processed("4:1")
        story >> job_ended(4)
        # (.fail commit of 3)  ⇒  Storm: BATCH 3 4 5 6.  Here 3 alone, and 4 keeps its work: promise 5
        story >> failed("3:2") << _batch(9, "3:3", 10)
        story >> group_ended(3)

        # (.ack 3)  ⇒  COMMIT 3
        story >> processed("3:3") << commit(4, "3:3", metadata=10)
        story >> job_ended(9)
        # (.ack 4) (.nextTuple)  ⇒  nothing.  Here 4 has been acked before, and is once more
        story >> processed("4:1")
        story >> ticked(70)
        # (.ack commit of 3)  ⇒  COMMIT 4, BATCH [7 12]
        story >> committed("3:3") << clean_up(3) << ask(7, 1, previous=12)
        story >> group_ended(4) << commit(5, "4:1", metadata=10)
        story >> begun(7, metadata=12) << save(7, metadata=12) << _batch(10, "7:1", 12, previous=12)


def _begin_four(story: Scenario) -> None:
    story >> recovered() << ask(1, 4)
    story >> begun(1, 2, 3, 4, metadata=10) << save(1, 2, 3, 4, metadata=10)
    story << _batch(1, "1:1", 10, previous=None) << _batch(2, "2:1", 10)
    story << _batch(3, "3:1", 10) << _batch(4, "4:1", 10)


def _batch(job_id: int, attempt: str, metadata: int, *, previous: int | None = 10) -> Process:
    return run(job_id, attempt, metadata=metadata, previous=previous)
