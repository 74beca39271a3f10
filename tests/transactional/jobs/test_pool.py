"""The pool of real-time mode, as a state machine: every call is answered once or lost once, whatever its workers do."""

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from txtopo.transactional.jobs.pool import (
    DROP_SECS,
    Answer,
    Answered,
    Assign,
    Cancelled,
    Compute,
    ComputeAsked,
    Drop,
    Dropped,
    EndJob,
    EndWorker,
    Heard,
    JobAsked,
    Joined,
    Lose,
    Lost,
    Place,
    Pool,
    Renew,
    Tell,
    Ticked,
)


class Story:
    """A pool, and what its workers were told."""

    def __init__(self, workers: int = 2) -> None:
        self.pool = Pool()
        self.now = 0.0
        for worker in range(workers):
            self.tell(Joined(worker, worker))

    def tell(self, event, after: float = 0.0):
        self.now += after
        return self.pool.handle(event, self.now)

    def answer(self, worker: int, job: int, slot: int, attempt: int, content: bytes = b"r", stage: int = 0):
        return self.tell(Heard(worker, worker, Answered(job, Place(stage, slot, attempt), content)))


def job(number: int, attempts: int, slots: int = 2, stages: int = 1, *, is_spread: bool | None = None) -> JobAsked:
    return JobAsked(number, b"job", attempts, slots, stages, stages > 1 if is_spread is None else is_spread)


def assign(number: int, *calls: tuple[int, int], workers: tuple[int, ...] = ()) -> Assign:
    return Assign(number, b"job", calls, workers)


def test_attempts_are_answered_one_by_one() -> None:
    """Each worker gets a share of whole attempts, and each attempt is passed on as soon as it is answered."""
    story = Story()
    assert story.tell(job(7, 3)) == [
        Tell(0, 0, assign(7, (0, 0), (0, 2))),
        Tell(1, 1, assign(7, (1, 1))),
    ]
    assert story.answer(1, 7, 1, 1) == [Answer(7, 1, (b"r",))]
    assert story.answer(0, 7, 0, 0) == [Answer(7, 0, (b"r",))]
    assert story.answer(0, 7, 0, 2) == [Answer(7, 2, (b"r",)), EndJob(7)]
    assert not story.pool.jobs


def test_a_lone_attempt_goes_to_a_worker_that_is_free() -> None:
    """A lone transaction never waits for another: its worker holds nothing if there is one that does not."""
    story = Story()
    assert story.tell(job(1, 1, slots=1)) == [Tell(0, 0, assign(1, (0, 0)))]
    assert story.tell(job(2, 1, slots=1)) == [Tell(1, 1, assign(2, (0, 0)))]


def test_what_was_never_begun_goes_to_the_living_and_only_the_first_call_is_lost() -> None:
    """A death costs the attempt that was under way. The others of its worker were not begun, and nobody is told."""
    story = Story()
    story.tell(job(7, 6))
    story.answer(0, 7, 0, 0)
    assert story.tell(Lost(0, 0, "killed")) == [
        Lose(7, 2, "worker 0 died: killed"),
        Tell(1, 1, assign(7, (0, 4))),
    ]
    assert story.answer(0, 7, 0, 2) == []
    assert [story.answer(1, 7, slot, attempt) for slot, attempt in ((1, 1), (1, 3), (1, 5))] == [
        [Answer(7, attempt, (b"r",))] for attempt in (1, 3, 5)
    ]
    assert story.answer(1, 7, 0, 4) == [Answer(7, 4, (b"r",)), EndJob(7)]


def test_the_call_that_was_next_is_to_blame() -> None:
    """A worker begins the lowest transaction first, and says which it is; the pool loses that one."""
    story = Story(workers=1)
    story.tell(job(7, 2, slots=1))
    story.tell(job(8, 1, slots=1))
    lone = (8, Place(0, 0, 0))
    story.tell(Heard(0, 0, Answered(7, Place(0, 0, 0), b"r", lone)))
    assert story.tell(Lost(0, 0)) == [Lose(8, 0, "worker 0 died"), EndJob(8)]
    assert story.tell(Joined(0, 1)) == [Tell(0, 1, assign(7, (0, 1)))]


def test_a_job_that_shuffles_is_lost_with_one_of_its_workers() -> None:
    """A part of the shuffle is gone; the other workers forget the job, and what they answer later changes nothing."""
    story = Story()
    assert story.tell(job(7, 1, stages=2)) == [
        Tell(0, 0, assign(7, (0, 0), workers=(0, 1))),
        Tell(1, 1, assign(7, (1, 0), workers=(0, 1))),
    ]
    story.answer(1, 7, 1, 0)
    assert story.tell(Lost(0, 0)) == [Tell(1, 1, Drop(7)), EndJob(7, "worker 0 died")]
    assert story.answer(1, 7, 1, 0, stage=1) == []


def test_a_worker_that_has_answered_its_part_may_take_frames_with_it() -> None:
    """The others hear of its death before they have read its last frames, and then read none: the job is lost."""
    story = Story()
    story.tell(job(7, 1, stages=2))
    for stage in (0, 1):
        story.answer(0, 7, 0, 0, stage=stage)
    assert story.tell(Lost(0, 0)) == [Tell(1, 1, Drop(7)), EndJob(7, "worker 0 died")]


def test_an_attempt_of_several_stages_is_answered_once_all_slots_have_finished_all_stages() -> None:
    """Its reports are passed on together; a slot that has nothing to report says so."""
    story = Story()
    story.tell(job(7, 1, stages=2))
    answers = [story.answer(slot, 7, slot, 0, b"" if slot else b"r", stage) for stage in (0, 1) for slot in (0, 1)]
    assert answers == [[], [], [], [Answer(7, 0, (b"r", b"r")), EndJob(7)]]


def test_an_attempt_that_is_spread_in_one_stage_is_answered_once_all_slots_have() -> None:
    """Where no grouping moves tuples, the tasks of a transaction are in several slots, and nothing is shuffled."""
    story = Story()
    assert story.tell(job(7, 1, is_spread=True)) == [
        Tell(0, 0, assign(7, (0, 0), workers=(0, 1))),
        Tell(1, 1, assign(7, (1, 0), workers=(0, 1))),
    ]
    assert story.answer(0, 7, 0, 0) == []
    assert story.answer(1, 7, 1, 0) == [Answer(7, 0, (b"r", b"r")), EndJob(7)]


def test_jobs_wait_for_a_worker_and_their_timeouts_with_them() -> None:
    """While no worker lives, it is no fault of an attempt that nobody processes it."""
    story = Story(workers=0)
    assert story.tell(job(7, 2)) == []
    assert story.tell(Ticked()) == [Renew(7)]
    assert story.tell(Joined(1, 5)) == [Tell(1, 5, assign(7, (0, 0), (1, 1)))]
    assert story.tell(Ticked()) == []


def test_a_call_that_does_not_return_ends_its_worker() -> None:
    """A cancelled job ends at once. Its worker may take a second to drop it, and gets nothing new until it has."""
    story = Story()
    story.tell(job(7, 1, slots=1))
    assert story.tell(Cancelled(7)) == [Tell(0, 0, Drop(7)), EndJob(7, "it was cancelled")]
    assert story.pool.is_at_work(0, 0)
    assert story.tell(job(8, 2)) == [Tell(1, 1, assign(8, (0, 0), (1, 1)))]
    assert story.tell(Ticked()) == []
    assert isinstance(story.tell(Ticked(), after=DROP_SECS)[0], EndWorker)
    assert story.tell(Lost(0, 0)) == []


def test_a_worker_that_drops_a_cancelled_job_works_on() -> None:
    """It was only slow."""
    story = Story(workers=1)
    story.tell(job(7, 1, slots=1))
    story.tell(Cancelled(7))
    story.tell(Heard(0, 0, Dropped(7)))
    assert story.tell(Ticked(), after=DROP_SECS) == []
    assert not story.pool.is_at_work(0, 0)


def test_what_waits_behind_a_cancelled_call_is_not_to_blame() -> None:
    """A worker that is ended in a call of a cancelled job loses no attempt of another one: they were not begun."""
    story = Story(workers=1)
    story.tell(job(7, 1, slots=1))
    story.tell(job(8, 1, slots=1))
    story.tell(Cancelled(7))
    assert story.tell(Lost(0, 0)) == []
    assert story.tell(Joined(0, 1)) == [Tell(0, 1, assign(8, (0, 0)))]


def test_commit_phases_are_computed_by_all_workers() -> None:
    """Each item is a call of its own; if one is lost, the whole is, since the commit phase is tried again as a whole."""
    story = Story()
    assert story.tell(ComputeAsked(3, (b"a", b"b", b"c"))) == [
        Tell(0, 0, Compute(3, 0, b"a")),
        Tell(1, 1, Compute(3, 1, b"b")),
        Tell(0, 0, Compute(3, 2, b"c")),
    ]
    assert story.answer(0, 3, 0, 0) == [Answer(3, 0, (b"r",))]
    assert story.tell(Lost(1, 1)) == [Tell(0, 0, Drop(3)), EndJob(3, "worker 1 died")]


class AnyHistory(RuleBasedStateMachine):
    """Workers that join, die, answer twice, and answer when nobody asks; jobs that come and are cancelled."""

    @initialize(workers=st.integers(1, 4))
    def begin(self, workers: int) -> None:
        self.pool = Pool()
        self.now = 0.0
        self.generations = 0
        self.numbers = 0
        self.absent = set(range(workers))
        self.living: dict[int, int] = {}
        self.dead: list[tuple[int, int]] = []
        self.asked: dict[int, int] = {}
        """By job, how many attempts it has."""
        self.stages: dict[int, int] = {}
        self.ended: Counter[int] = Counter()
        self.settled: Counter[tuple[int, int]] = Counter()
        """By job and attempt, how often it was answered or lost."""
        self.given: dict[tuple[int, int], list[tuple[int, Place]]] = {}
        """By generation, the calls that it was told and has not answered."""
        self.said: list[Heard] = []

    def tell(self, event) -> None:
        for action in self.pool.handle(event, self.now):
            match action:
                case Tell(worker, generation, message):
                    assert self.living[worker] == generation, "only living workers are told something"
                    self.hear((worker, generation), message)
                case Answer(number, index) | Lose(number, index, _):
                    assert not self.ended[number], "nothing comes after a job's end"
                    self.settled[number, index] += 1
                case EndJob(number, error):
                    self.ended[number] += 1
                    if error is None:
                        assert all(self.settled[number, index] == 1 for index in range(self.asked[number]))
                case EndWorker(worker, generation):
                    assert self.living[worker] == generation
                case Renew(number):
                    assert not self.ended[number]

    def hear(self, who: tuple[int, int], message) -> None:
        calls = self.given[who]
        match message:
            case Assign(number, _, some, workers):
                assert bool(workers) or self.stages[number] == 1
                stages = range(self.stages[number])
                calls += [(number, Place(stage, slot, index)) for slot, index in some for stage in stages]
            case Compute(number, index):
                calls.append((number, Place(0, 0, index)))
            case Drop(number):
                self.given[who] = [call for call in calls if call[0] != number]
                self.said.append(Heard(*who, Dropped(number)))

    @rule(attempts=st.integers(1, 5), slots=st.integers(1, 3), stages=st.integers(1, 2), is_spread=st.booleans())
    def ask(self, attempts: int, slots: int, stages: int, *, is_spread: bool) -> None:
        self.numbers += 1
        self.asked[self.numbers] = attempts
        self.stages[self.numbers] = stages if is_spread else 1
        self.tell(job(self.numbers, attempts, slots, self.stages[self.numbers], is_spread=is_spread))

    @rule(items=st.integers(1, 4))
    def compute(self, items: int) -> None:
        self.numbers += 1
        self.asked[self.numbers] = items
        self.tell(ComputeAsked(self.numbers, (b"c",) * items))

    @precondition(lambda self: self.absent)
    @rule(data=st.data())
    def join(self, data) -> None:
        worker = data.draw(st.sampled_from(sorted(self.absent)))
        self.absent.remove(worker)
        self.generations += 1
        self.living[worker] = self.generations
        self.given[worker, self.generations] = []
        self.tell(Joined(worker, self.generations))

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def die(self, data) -> None:
        worker = data.draw(st.sampled_from(sorted(self.living)))
        generation = self.living.pop(worker)
        self.absent.add(worker)
        self.dead.append((worker, generation))
        self.tell(Lost(worker, generation))
        self.tell(Lost(worker, generation))

    @precondition(lambda self: any(self.given[who] for who in self.living.items()))
    @rule(data=st.data())
    def answer(self, data) -> None:
        who = data.draw(st.sampled_from(sorted(who for who in self.living.items() if self.given[who])))
        number, place = self.given[who].pop(data.draw(st.integers(0, len(self.given[who]) - 1)))
        told = Heard(*who, Answered(number, place, b"r"))
        self.said.append(told)
        self.tell(told)

    @precondition(lambda self: any(self.given[who] for who in self.dead))
    @rule(data=st.data())
    def answer_late(self, data) -> None:
        """A dead generation answers: nothing changes, which the invariants see."""
        who = data.draw(st.sampled_from(sorted(who for who in self.dead if self.given[who])))
        number, place = self.given[who].pop()
        assert self.pool.handle(Heard(*who, Answered(number, place, b"late")), self.now) == []

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def say_again(self, data) -> None:
        """What was said comes once more: nothing changes if it was an answer."""
        told = data.draw(st.sampled_from(self.said))
        actions = self.pool.handle(told, self.now)
        assert actions == []

    @rule(data=st.data())
    def cancel(self, data) -> None:
        if self.asked:
            self.tell(Cancelled(data.draw(st.sampled_from(sorted(self.asked)))))

    @rule(secs=st.sampled_from((0.1, 0.6)))
    def tick(self, secs: float) -> None:
        self.now += secs
        self.tell(Ticked())

    @invariant()
    def each_attempt_settles_once(self) -> None:
        assert all(times == 1 for times in self.settled.values())
        assert all(times == 1 for times in self.ended.values())

    @invariant()
    def nothing_is_kept_of_what_has_ended(self) -> None:
        assert set(self.pool.jobs) == {number for number in self.asked if not self.ended[number]}
        for who, calls in self.pool.calls().items():
            assert self.living.get(who[0]) == who[1]
            assert set(calls) == set(self.given[who]), "the pool knows what each worker holds"
            assert not any(self.ended[number] for number, _ in calls)

    @invariant()
    def nothing_waits_while_a_worker_lives(self) -> None:
        if self.living:
            held = {(number, place.attempt) for calls in self.pool.calls().values() for number, place in calls}
            waiting = {
                (number, index)
                for number in self.pool.jobs
                for index in range(self.asked[number])
                if not self.settled[number, index]
            }
            assert waiting <= held


TestAnyHistory = pytest.mark.timeout(300)(AnyHistory.TestCase)
