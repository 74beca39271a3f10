"""The coordinator in random but legal worlds: see :mod:`tests.stateful.world` for what must hold.

Several jobs in flight; answers in any order, lost, doubled and late; failures in both phases; time; crashes at
any moment, in the middle of a list of actions too; new leaders with other limits. At the end the faults stop,
and all must be committed within a bounded number of steps.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.stateful.world import World
from txtopo.transactional.core.events import (
    Activated,
    Deactivated,
    Failed,
    Processed,
    Progressed,
    SourceStatus,
    StopRequested,
)
from txtopo.transactional.core.limits import GiveUpPolicy, Limits
from txtopo.transactional.core.spout_policy import MIXED, OPAQUE, REPEATABLE, SpoutPolicy

INDEX = st.integers(0, 11)
ENDS = [*["go on"] * 12, "crash", "crash among the next actions", "be asked to stop"]


@st.composite
def bounds(draw: st.DrawFn, spout: SpoutPolicy) -> Limits:
    """Small limits, so that all of them are met."""
    return Limits(
        pending_max=draw(st.integers(1, 6)),
        job_transactions_max=draw(st.integers(1, 4)),
        jobs_max=draw(st.integers(1, 3)),
        group_transactions_max=draw(st.integers(1, 4)),
        timeout_ms=1_000,
        tries_max=draw(st.none() | st.integers(1, 3)),
        give_up_policy=draw(st.sampled_from(GiveUpPolicy)),
        job_failures_max=draw(st.integers(0, 4)),
        retry_delay_ms=100,
        until=draw(st.none() | st.none() | st.integers(0, 40)),
        spout=spout,
    )


class CoordinatorMachine(RuleBasedStateMachine):
    """What may happen to a coordinator."""

    spout: SpoutPolicy = REPEATABLE

    @initialize(total=st.integers(0, 24), data=st.data())
    def begin(self, total: int, data: st.DataObject) -> None:
        self.world = World(total, self.spout)
        self.world.start(data.draw(bounds(self.spout)))

    # Leaders.

    @precondition(lambda self: not self.world.is_running)
    @rule(data=st.data(), more=st.integers(0, 12))
    def a_new_leader_starts(self, data: st.DataObject, more: int) -> None:
        self.world.start(data.draw(bounds(self.spout)), more)

    @precondition(lambda self: self.world.is_running)
    @rule(end=st.sampled_from(ENDS), actions_max=st.integers(0, 3))
    def the_leader_may_end(self, end: str, actions_max: int) -> None:
        """Rarely, or no story would come far."""
        match end:
            case "crash":
                self.world.has_crashed = True
            case "crash among the next actions":
                self.world.actions_max = actions_max
            case "be asked to stop":
                self.world.has_asked_to_stop = True
                self.world.tell(StopRequested())
            case _:
                pass

    @precondition(lambda self: self.world.is_running)
    @rule(is_active=st.booleans())
    def it_is_activated_or_not(self, *, is_active: bool) -> None:
        self.world.tell(Activated() if is_active else Deactivated())

    @precondition(lambda self: self.world.is_running)
    @rule(data=st.data(), loses=st.sampled_from([*[False] * 12, True]), events=st.integers(0, 6))
    def the_lead_may_be_lost(self, data: st.DataObject, *, loses: bool, events: int) -> None:
        """Rarely, too; the zombie goes on beside its successor."""
        if loses:
            self.world.lose_lead(data.draw(bounds(self.spout)), events)

    @precondition(lambda self: self.world.is_running)
    @rule(choices=st.lists(INDEX, min_size=1, max_size=20))
    def all_goes_well_for_a_while(self, choices: list[int]) -> None:
        """Without it no story would come far."""
        for choice in choices:
            if self.world.is_running:
                self.world.go_well(choice)

    # The source.

    @precondition(lambda self: self.world.is_running and self.world.question)
    @rule(count=st.integers(1, 6))
    def the_source_begins_some(self, count: int) -> None:
        self.world.answer_source(count, SourceStatus.READY)

    @precondition(lambda self: self.world.is_running and self.world.question)
    @rule(count=st.integers(0, 3))
    def the_source_waits(self, count: int) -> None:
        self.world.answer_source(count, SourceStatus.WAITING)

    # Jobs.

    @precondition(lambda self: self.world.is_running and self._answerable())
    @rule(job=INDEX, attempt=INDEX)
    def an_attempt_is_processed(self, job: int, attempt: int) -> None:
        jobs = self._answerable()
        chosen = jobs[job % len(jobs)]
        self.world.answer(chosen, attempt % len(chosen.unanswered), fails=False)

    @precondition(lambda self: self.world.is_running and self._answerable())
    @rule(job=INDEX)
    def a_whole_job_is_processed(self, job: int) -> None:
        jobs = self._answerable()
        chosen = jobs[job % len(jobs)]
        while chosen.unanswered and self.world.is_running:
            self.world.answer(chosen, 0, fails=False)

    @precondition(lambda self: self.world.is_running and self._answerable())
    @rule(job=INDEX, attempt=INDEX)
    def an_attempt_is_lost(self, job: int, attempt: int) -> None:
        jobs = self._answerable()
        chosen = jobs[job % len(jobs)]
        self.world.lose(chosen, attempt % len(chosen.unanswered))

    @precondition(lambda self: self.world.is_running and self._answerable())
    @rule(job=INDEX, attempt=INDEX, knows_metadata=st.booleans())
    def an_attempt_fails(self, job: int, attempt: int, *, knows_metadata: bool) -> None:
        jobs = self._answerable()
        chosen = jobs[job % len(jobs)]
        self.world.answer(chosen, attempt % len(chosen.unanswered), fails=True, knows_metadata=knows_metadata)

    @precondition(lambda self: self.world.is_running and self.world.jobs)
    @rule(job=INDEX, is_lost=st.booleans())
    def a_job_ends(self, job: int, *, is_lost: bool) -> None:
        job_ids = sorted(self.world.jobs)
        self.world.end_job(job_ids[job % len(job_ids)], is_lost=is_lost)

    # Late.

    @precondition(lambda self: self.world.is_running and self.world.unsaid)
    @rule(index=INDEX, fails=st.booleans())
    def an_answer_comes_late(self, index: int, *, fails: bool) -> None:
        attempt = self.world.unsaid.pop(index % len(self.world.unsaid))
        self.world.tell_too_late(Failed(attempt, "late", 99) if fails else Processed(attempt, 99))

    @precondition(lambda self: self.world.is_running and self.world.past)
    @rule(index=INDEX)
    def an_answer_comes_twice(self, index: int) -> None:
        self.world.tell_too_late(self.world.past[-1 - index % len(self.world.past)])

    # Commit groups.

    @precondition(lambda self: self.world.is_running and self._group_runs())
    @rule(count=st.integers(0, 4), fails=st.booleans(), gather_ms=st.sampled_from([0, 0, 300]))
    def the_group_runs(self, count: int, *, fails: bool, gather_ms: int) -> None:
        self.world.commit(count, fails=fails, gather_ms=gather_ms)

    @precondition(lambda self: self.world.is_running and self._group_runs())
    @rule(before=INDEX)
    def one_of_the_group_fails(self, before: int) -> None:
        assert self.world.group is not None
        self.world.commit(before % len(self.world.group.attempts), fails=True)
        while self.world.is_running and self._group_has_run():
            self.world.tell_of_group()

    @precondition(lambda self: self.world.is_running and self._group_has_run())
    @rule()
    def the_group_is_told_of(self) -> None:
        self.world.tell_of_group()

    # Time.

    @precondition(lambda self: self.world.is_running)
    @rule(duration_ms=st.sampled_from([10, 100, 400, 999, 1_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.world.pass_time(duration_ms)

    @precondition(lambda self: self.world.is_running and self.world.core.pending)
    @rule(index=INDEX)
    def work_gets_on(self, index: int) -> None:
        attempts = [t.attempt for t in self.world.core.pending.values() if t.attempt is not None]
        self.world.tell(Progressed(tuple(attempts[index:])))

    def teardown(self) -> None:
        """All is committed once the faults stop."""
        if hasattr(self, "world"):
            self.world.finish(Limits(4, 4, 2, 4, 1_000, spout=self.spout))

    # Leaves.

    def _answerable(self) -> list:
        return [job for job in self.world.jobs.values() if job.unanswered]

    def _group_runs(self) -> bool:
        return self.world.group is not None and self.world.group.to_tell is None

    def _group_has_run(self) -> bool:
        return self.world.group is not None and self.world.group.to_tell is not None


class OpaqueMachine(CoordinatorMachine):
    """What may happen to the coordinator of an opaque spout."""

    spout = OPAQUE


class MixedMachine(CoordinatorMachine):
    """What may happen to the coordinator of a repeatable spout beside an opaque one."""

    spout = MIXED


TestRepeatable = CoordinatorMachine.TestCase
TestOpaque = OpaqueMachine.TestCase
TestMixed = MixedMachine.TestCase
