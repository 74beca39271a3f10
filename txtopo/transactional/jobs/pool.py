"""The pool: which worker is to run which part of a job, and what has been answered. A pure state machine.

In real-time mode the workers are resident: one Spark task in each slot for the whole run. A job is sent to them over
their channels and answered attempt by attempt. The pool knows the workers that live, and every *call* that one of them
holds: one attempt, in one stage and slot of one job. Events go in, with the time; actions come out, in order.

Each call is answered once or lost once, whatever dies, falls silent or speaks twice:

- An answer counts if its generation is alive and holds that call; the call is then gone from it. So the answer of a
  dead generation, a second answer, and one to a job that has ended change nothing.
- If a generation is lost, all calls that it holds are lost with it, and no others.
- A job ends once: when all of its attempts are answered or lost, when it loses a part without which the others can't
  go on, or when it is cancelled. Nothing is kept of it then, and every worker that has a part of it forgets it.

What a death costs
==================
In a layout that is not spread, a call is a whole attempt, and a worker runs one at a time, the lowest transaction that
it holds first: the others could not commit before it. With each answer it says which call is *next*, and it keeps to
that even if a lower one comes meanwhile. If it had none, the first call that it is given is next. So the pool knows
which of the calls that die with a worker can have killed it:

1. Worker 0 holds attempts 4, 6 and 8 of job 7; worker 1 holds 5 and 7. Worker 0 dies, and 4 was next.
2. Attempt 4 is *lost*: the coordinator is told at once, and it decides whether and when to try its transaction again.
3. 6 and 8 were never begun. They go to worker 1, with the same attempt numbers, and nobody is told.
4. Worker 1 answers 5, 7, 6 and 8, and the job ends.

A spread attempt needs all of its job's slots, in one stage as in several: if a worker dies, the job is lost, even if
that worker has answered all of its part. Worker 2 sends its last frame to worker 0, answers, and dies; worker 0 hears
of the death first, and takes no frame of the dead.

A job that was cancelled may be under way in a call that never returns. Its workers are told to drop it and answer that
they have; one that has not after ``DROP_SECS`` is ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, assert_never

import attrs

DROP_SECS = 1.0
"""How long a worker may take to drop a cancelled job: the call that is under way can't be interrupted."""


class Place(NamedTuple):
    """A part of a job that is answered by itself."""

    stage: int
    slot: int
    attempt: int
    """Its index in the job."""


Call = tuple[int, Place]
"""A job, and a part of it."""


# -- what the driver and a worker's body say to each other


@attrs.frozen
class Assign:
    """Run calls of a job: of the first stage, as (slot, index); those of later stages once their input is there."""

    job: int
    content: bytes = attrs.field(repr=False)
    """The pickled job."""
    calls: tuple[tuple[int, int], ...]
    workers: tuple[int, ...]
    """By slot, the worker that holds it; empty if the layout is not spread: then each call is a whole attempt."""


@attrs.frozen
class Compute:
    """Compute something for the commit phase, before any call of an attempt."""

    job: int
    index: int
    content: bytes = attrs.field(repr=False)
    """The pickled function and its argument."""


@attrs.frozen
class Drop:
    """Forget a job."""

    job: int


@attrs.frozen
class Answered:
    """A call is done."""

    job: int
    place: Place
    content: bytes = attrs.field(repr=False)
    """The pickled reports, or what was computed; empty if there is nothing to report."""
    next: Call | None = None
    """The call that the worker begins next, or has begun; None if it has none."""


@attrs.frozen
class Dropped:
    """A job was forgotten."""

    job: int
    next: Call | None = None
    """As in an answer."""


ToBody = Assign | Compute | Drop
FromBody = Answered | Dropped


# -- events


@attrs.frozen
class JobAsked:
    """A job is to run; its number is higher than those of all jobs before."""

    job: int
    content: bytes = attrs.field(repr=False)
    attempts: int
    slots: int
    stages: int
    is_spread: bool
    """Whether each slot answers each attempt in each stage; else an attempt is whole in one slot, and in one stage."""


@attrs.frozen
class ComputeAsked:
    """Calls of a commit phase are to be computed, as a separate job."""

    job: int
    contents: tuple[bytes, ...] = attrs.field(repr=False)


@attrs.frozen
class Cancelled:
    """Nobody waits for a job any more."""

    job: int


@attrs.frozen
class Joined:
    """A generation of a worker is ready for calls."""

    worker: int
    generation: int


@attrs.frozen
class Lost:
    """A generation is dead, or counts as dead."""

    worker: int
    generation: int
    error: str = ""


@attrs.frozen
class Heard:
    """A body has sent a message."""

    worker: int
    generation: int
    message: FromBody


@attrs.frozen
class Ticked:
    """Time has passed."""


Event = JobAsked | ComputeAsked | Cancelled | Joined | Lost | Heard | Ticked


# -- actions


@attrs.frozen
class Tell:
    """Say something to the body of a generation."""

    worker: int
    generation: int
    message: ToBody


@attrs.frozen
class Answer:
    """An attempt, or a computed item, is answered: what its calls have reported."""

    job: int
    index: int
    contents: tuple[bytes, ...] = attrs.field(repr=False)


@attrs.frozen
class Lose:
    """An attempt is lost: its worker died in it. Its job goes on."""

    job: int
    index: int
    error: str


@attrs.frozen
class EndJob:
    """A job has ended; with an error, what has no answer is lost."""

    job: int
    error: str | None = None


@attrs.frozen
class Renew:
    """A job waits for a worker, which is not its attempts' fault."""

    job: int


@attrs.frozen
class EndWorker:
    """End a generation."""

    worker: int
    generation: int
    reason: str


Action = Tell | Answer | Lose | EndJob | Renew | EndWorker


@attrs.define(eq=False)
class _Member:
    worker: int
    generation: int
    calls: dict[Call, None] = attrs.field(factory=dict)
    """The calls that it holds, in the order in which it was given them."""
    next: Call | None = None
    """The one that it has said to be next; None if it had none then."""
    dropping: dict[int, float] = attrs.field(factory=dict)
    """By cancelled job that it has not dropped yet, until when it may take."""

    def under_way(self, attempts: Iterable[Call]) -> Call | None:
        """Return which of the attempts that it holds is under way, if one is."""
        if self.is_stuck:  # in what it has not dropped
            return None
        return self.next if self.next in self.calls else next(iter(attempts), None)

    @property
    def is_stuck(self) -> bool:
        """Whether the call that is under way may never return."""
        return bool(self.dropping)


@attrs.define(eq=False)
class _Job:
    number: int
    contents: Sequence[bytes]
    """The pickled job, or what is to be computed, by index."""
    slots: int
    stages: int
    is_spread: bool
    left: dict[int, int]
    """By index that is not answered, how many of its calls are not."""
    is_computed: bool = False
    reported: dict[int, list[bytes]] = attrs.field(factory=lambda: defaultdict(list))
    waiting: tuple[int, ...] = ()
    """The indices that no worker holds."""
    workers: tuple[int, ...] = ()
    """By slot, the worker that holds it, if the job is spread."""


class Pool:
    """The workers of one run in real-time mode, and the jobs that they hold."""

    def __init__(self) -> None:
        self._members: dict[int, _Member] = {}
        self._jobs: dict[int, _Job] = {}
        self._actions: list[Action] = []
        self._now = 0.0

    @property
    def jobs(self) -> tuple[int, ...]:
        """The jobs that have not ended."""
        return tuple(self._jobs)

    def is_at_work(self, worker: int, generation: int) -> bool:
        """Return whether a generation holds a call, or has not dropped one."""
        member = self._members.get(worker)
        return member is not None and member.generation == generation and bool(member.calls or member.dropping)

    def at_work(self) -> list[tuple[int, int]]:
        """Return the (worker, generation) pairs that are at work."""
        return [
            (member.worker, member.generation) for member in self._members.values() if member.calls or member.dropping
        ]

    def calls(self) -> dict[tuple[int, int], tuple[Call, ...]]:
        """Return the calls that each (worker, generation) holds, with their jobs, for checks."""
        return {(member.worker, member.generation): tuple(member.calls) for member in self._members.values()}

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event, and return the actions; ``now`` is in seconds of any clock that never goes back."""
        self._now = now
        self._actions = []
        match event:
            case JobAsked():
                self._begin(event)
            case ComputeAsked(number, contents):
                every = dict.fromkeys(range(len(contents)), 1)
                self._place(self._add(_Job(number, contents, 1, 1, False, every, is_computed=True)), every)
            case Cancelled(number):
                self._cancel(number)
            case Joined(worker, generation):
                self._members[worker] = _Member(worker, generation)
                for job in list(self._jobs.values()):
                    self._place(job, job.waiting)
            case Lost():
                self._lose(event)
            case Heard():
                self._hear(event)
            case Ticked():
                self._tick()
            case _:
                assert_never(event)
        return self._actions

    def _add(self, job: _Job) -> _Job:
        assert job.number not in self._jobs, "a job has a number of its own"
        self._jobs[job.number] = job
        return job

    def _begin(self, request: JobAsked) -> None:
        assert request.is_spread or request.stages == 1, "an attempt that is whole in a slot is shuffled nowhere"
        calls_left = dict.fromkeys(range(request.attempts), request.slots * request.stages if request.is_spread else 1)
        job = _Job(request.job, (request.content,), request.slots, request.stages, request.is_spread, calls_left)
        self._place(self._add(job), calls_left)

    # Which worker holds what.

    def _place(self, job: _Job, indices: Iterable[int]) -> None:
        """Give calls to the workers that live; if there is none, they wait for one."""
        indices = tuple(indices)
        able = self._able()
        job.waiting = indices if not able else ()
        if not able or not indices:
            return
        if job.is_computed:
            for index in indices:
                self._give_one(job, self._able()[0], index)
        elif job.is_spread:
            self._spread(job, able, indices)
        else:
            self._deal(job, able, indices)

    def _able(self) -> list[_Member]:
        """Return the workers that can take calls, the one that holds the fewest first."""
        members = list(self._members.values())
        able = [member for member in members if not member.is_stuck] or members
        return sorted(able, key=lambda member: (len(member.calls), member.worker))

    def _give_one(self, job: _Job, member: _Member, index: int) -> None:
        member.calls[job.number, Place(0, 0, index)] = None
        self._tell(member, Compute(job.number, index, job.contents[index]))

    def _deal(self, job: _Job, able: list[_Member], indices: tuple[int, ...]) -> None:
        """Give whole attempts to workers, all of a slot to one."""
        of_slot = {slot: able[turn % len(able)] for turn, slot in enumerate(sorted({i % job.slots for i in indices}))}
        for member in able:
            calls = tuple((i % job.slots, i) for i in indices if of_slot[i % job.slots] is member)
            if calls:
                member.calls.update(dict.fromkeys((job.number, Place(0, slot, index)) for slot, index in calls))
                self._tell(member, Assign(job.number, job.contents[0], calls, ()))

    def _spread(self, job: _Job, able: list[_Member], indices: tuple[int, ...]) -> None:
        """Give each slot to a worker, with all stages and attempts of the job."""
        by_slot = [able[slot % len(able)] for slot in range(job.slots)]
        job.workers = tuple(member.worker for member in by_slot)
        for member in able:
            slots = [slot for slot, of_slot in enumerate(by_slot) if of_slot is member]
            if slots:
                places = (Place(st, sl, i) for i in indices for sl in slots for st in range(job.stages))
                member.calls.update(dict.fromkeys((job.number, place) for place in places))
                calls = tuple((slot, index) for index in indices for slot in slots)
                self._tell(member, Assign(job.number, job.contents[0], calls, job.workers))

    # What comes back.

    def _hear(self, heard: Heard) -> None:
        member = self._members.get(heard.worker)
        if member is None or member.generation != heard.generation:
            return  # of a dead generation
        member.next = heard.message.next
        match heard.message:
            case Answered(number, place, content, _):
                if (number, place) in member.calls:
                    del member.calls[number, place]
                    self._answer(self._jobs[number], place.attempt, content)
            case Dropped(number, _):
                member.dropping.pop(number, None)
            case _:
                assert_never(heard.message)

    def _answer(self, job: _Job, index: int, content: bytes) -> None:
        if content:
            job.reported[index].append(content)
        job.left[index] -= 1
        if job.left[index] == 0:
            del job.left[index]
            self._do(Answer(job.number, index, tuple(job.reported.pop(index, ()))))
            self._end_if_done(job)

    def _end_if_done(self, job: _Job) -> None:
        if not job.left:
            del self._jobs[job.number]
            self._do(EndJob(job.number))

    # What goes wrong.

    def _lose(self, lost: Lost) -> None:
        member = self._members.get(lost.worker)
        if member is None or member.generation != lost.generation:
            return
        del self._members[lost.worker]
        error = f"worker {lost.worker} died{f': {lost.error}' if lost.error else ''}"
        suspect = member.under_way(call for call in member.calls if not self._jobs[call[0]].is_computed)
        # Whoever has answered all of its part may take frames with it that have not arrived.
        for job in [job for job in self._jobs.values() if member.worker in job.workers]:
            self._end(job, error)
        by_job: dict[int, list[Place]] = defaultdict(list)
        for number, place in member.calls:
            if number in self._jobs:
                by_job[number].append(place)
        for number, places in by_job.items():
            job = self._jobs[number]
            if job.is_computed:
                self._end(job, error)
                continue
            if suspect is not None and suspect[0] == number:
                del job.left[suspect[1].attempt]
                self._do(Lose(number, suspect[1].attempt, error))
            self._place(job, (*job.waiting, *(place.attempt for place in places if place.attempt in job.left)))
            self._end_if_done(job)

    def _cancel(self, number: int) -> None:
        job = self._jobs.get(number)
        if job is not None:
            holders = self._end(job, "it was cancelled")
            for member in holders:
                member.dropping[number] = self._now + DROP_SECS

    def _end(self, job: _Job, error: str) -> list[_Member]:
        """End a job that is not done; return the workers that had a part of it."""
        del self._jobs[job.number]
        holders = []
        for member in self._members.values():
            calls = [key for key in member.calls if key[0] == job.number]
            if calls:
                for key in calls:
                    del member.calls[key]
                self._tell(member, Drop(job.number))
                holders.append(member)
        self._do(EndJob(job.number, error))
        return holders

    def _tick(self) -> None:
        for member in self._members.values():
            if any(self._now >= until for until in member.dropping.values()):
                self._do(EndWorker(member.worker, member.generation, "a call of a cancelled job does not return"))
        for job in self._jobs.values():
            if job.waiting:
                self._do(Renew(job.number))

    def _tell(self, member: _Member, message: ToBody) -> None:
        self._do(Tell(member.worker, member.generation, message))

    def _do(self, action: Action) -> None:
        self._actions.append(action)
