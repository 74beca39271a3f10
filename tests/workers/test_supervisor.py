"""Supervision decides who is alive, who is started again, and when a run ends."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from txtopo.errors import InputError, StopError, UserCodeError
from txtopo.workers.actions import (
    Action,
    CancelJob,
    Close,
    Deliver,
    Finish,
    KeepLast,
    ReportJoined,
    ReportLost,
    Send,
    StartJob,
    Warn,
)
from txtopo.workers.broken_links import LINK_SECS
from txtopo.workers.events import (
    ActivationAsked,
    ChannelLost,
    EndAsked,
    Event,
    Excused,
    JobEnded,
    Received,
    Stalled,
    StopAsked,
    TellAsked,
    Ticked,
)
from txtopo.workers.messages import (
    BodyMessage,
    Failed,
    Health,
    Heartbeat,
    Hello,
    LinkBroken,
    Peer,
    PeerJoined,
    PeerReplaced,
    SetActive,
    Stop,
    Stopped,
    Welcome,
)
from txtopo.workers.supervisor import SILENCE_SECS, STOP_SECS, RunPhase, Supervisor

ADDRESS = ("127.0.0.1", 1)


def health(
    *, is_done: bool = False, is_idle: bool = True, pending: int = 0, acked: int = 0, activity: int = 0, **traffic: Any
) -> Health:
    """Say how a worker is."""
    sent, received = traffic.get("sent", {}), traffic.get("received", {})
    return Health(is_done, is_idle, pending, acked, activity, sent, received, None)


class Story:
    """A run, told event by event."""

    def __init__(
        self,
        workers: int = 2,
        *,
        restarts_max: int = 10,
        is_active: bool = True,
        is_owned: bool = False,
    ) -> None:
        self.now = 0.0
        self.supervisor = Supervisor(
            workers,
            restarts_max=restarts_max,
            period_secs=60.0,
            is_active=is_active,
            now=0.0,
            stall_secs_max=30.0,
            component_of={3: "split"},
            is_owned=is_owned,
        )
        assert self.supervisor.begin() == [StartJob(worker, 0) for worker in range(workers)]
        self.sent: list[Action] = []

    def tell(self, event: Event, *, after: float = 0.0) -> list[Action]:
        """Tell an event, some seconds after the last one."""
        self.now += after
        actions = self.supervisor.handle(event, self.now)
        self.sent += actions
        return actions

    def greet(self, worker: int, channel: int, job: int = 0) -> list[Action]:
        """Let a worker say hello."""
        return self.tell(Received(channel, Hello(worker, job, "host:1", ADDRESS)))

    def beat(self, channel: int, health: Health | None = None, *, after: float = 0.0, unheard: int = 0) -> list[Action]:
        """Let a worker send a heartbeat, before it hears some of what it was told of its spouts."""
        told = sum(self.sent.count(Send(channel, SetActive(is_active=is_active))) for is_active in (True, False))
        health = None if health is None else attrs.evolve(health, heard=told - unheard)
        return self.tell(Received(channel, Heartbeat(health)), after=after)

    def running(self) -> Story:
        """Let two workers run, on the channels 10 and 11."""
        self.greet(0, 10)
        self.greet(1, 11)
        return self


def test_rendezvous() -> None:
    """Who says hello is welcomed with its generation and its peers; those that run already are told its address."""
    story = Story()
    assert story.greet(0, 10) == [Send(10, Welcome(0, (Peer(1, 1, None),), is_active=True))]
    assert story.greet(1, 11) == [
        Send(11, Welcome(1, (Peer(0, 0, ADDRESS),), is_active=True)),
        Send(10, PeerJoined(Peer(1, 1, ADDRESS))),
    ]


def test_death() -> None:
    """The others are told of a death at once, with who follows; the next job starts when Spark has ended the last."""
    story = Story().running()
    assert story.tell(ChannelLost(11)) == [Close(11), Send(10, PeerReplaced(1, Peer(1, 2, None)))]
    started = story.tell(JobEnded(1, 0, RuntimeError("lost")))
    assert started == [Warn("worker 1 died: lost; it is started again"), StartJob(1, 1)]
    assert story.greet(1, 12, job=1) == [
        Send(12, Welcome(2, (Peer(0, 0, ADDRESS),), is_active=True)),
        Send(10, PeerJoined(Peer(1, 2, ADDRESS))),
    ]
    assert story.supervisor.restarts == 1


def test_job_ends_first() -> None:
    """It is the same if Spark says so before the channel's end is seen; that comes too late then."""
    story = Story().running()
    assert story.tell(JobEnded(1, 0, RuntimeError("lost"))) == [
        Close(11),
        Send(10, PeerReplaced(1, Peer(1, 2, None))),
        Warn("worker 1 died: lost; it is started again"),
        StartJob(1, 1),
    ]
    assert story.tell(ChannelLost(11)) == []
    assert story.tell(JobEnded(1, 0, None)) == []


def test_spark_starts_the_task_again() -> None:
    """A second hello of a job means that the first process is dead: the newcomer is another generation."""
    story = Story().running()
    assert story.greet(1, 12) == [
        Close(11),
        Send(10, PeerReplaced(1, Peer(1, 2, None))),
        Send(12, Welcome(2, (Peer(0, 0, ADDRESS),), is_active=True)),
        Send(10, PeerJoined(Peer(1, 2, ADDRESS))),
    ]
    assert story.beat(11, health()) == []


def test_stale_hello() -> None:
    """A process of a job that has ended, or of no worker of the run, is shown the door."""
    story = Story().running()
    story.tell(JobEnded(1, 0, RuntimeError("lost")))
    assert story.greet(1, 13, job=0) == [Close(13)]
    assert story.greet(7, 14) == [Close(14)]


def test_silence() -> None:
    """A worker that says nothing for five seconds is dead: the others are told, and its job is cancelled."""
    story = Story().running()
    story.beat(10, after=4.0)
    actions = story.tell(Ticked(), after=1.5)
    assert actions[1:] == [Close(11), Send(10, PeerReplaced(1, Peer(1, 2, None))), CancelJob(1, 0)]
    assert story.greet(1, 12) == [Close(12)]  # its job holds the slot until it has ended
    assert StartJob(1, 1) in story.tell(JobEnded(1, 0, RuntimeError("cancelled")))


def test_a_busy_worker_is_not_dead() -> None:
    """A worker that can't beat and takes processor time lives on; after ten seconds it is said, once, what it is in."""
    story = Story().running()
    said = []
    for secs in range(2, 29):
        story.beat(10)
        said += story.tell(Stalled(1, 1, 3, float(secs), is_working=True), after=1.0)
        said += story.tell(Ticked())
    (warning,) = said
    assert isinstance(warning, Warn)
    assert "task 3 of 'split' has kept the interpreter of worker 1 for 10 s" in warning.text
    assert story.beat(11) == []


def test_a_call_that_is_too_long() -> None:
    """After the message timeout its worker is ended like a dead one, and the error names component and task."""
    story = Story(restarts_max=0).running()
    actions = story.tell(Stalled(1, 1, 3, 30.0, is_working=True))
    assert actions[1:] == [Close(11), Send(10, PeerReplaced(1, Peer(1, 2, None))), CancelJob(1, 0)]
    assert story.tell(Stalled(1, 1, 3, 31.0, is_working=True)) == []  # of a generation that is dead
    story.tell(JobEnded(1, 0, RuntimeError("cancelled")))
    story.tell(Received(10, Stopped(health())))
    (finish,) = story.tell(JobEnded(0, 0, None))
    assert isinstance(finish, Finish)
    assert isinstance(finish.error, UserCodeError)
    assert finish.error.component == "split"
    assert (
        "task 3: one call has kept Python's interpreter lock for longer than topology.message.timeout.secs = 30"
        in str(finish.error)
    )


def test_a_frozen_worker_is_dead() -> None:
    """A process that can't beat and takes no processor time is dead after five seconds; what it was in is said."""
    story = Story().running()
    for secs in range(2, 5):
        assert story.tell(Stalled(1, 1, 3, float(secs), is_working=False), after=1.0) == []
    story.beat(10)
    actions = story.tell(Ticked(), after=2.5)
    assert actions == [
        Warn("worker 1 has said nothing for 5 s, in task 3 of 'split'; it is counted as dead"),
        Close(11),
        Send(10, PeerReplaced(1, Peer(1, 2, None))),
        CancelJob(1, 0),
    ]


def test_a_second_silence() -> None:
    """A successor that falls silent is dead and cancelled like the first; a late word for that one does not keep it."""
    story = Story().running()
    for job, channel in ((0, 11), (1, 12)):
        story.tell(Received(10, Heartbeat(None)), after=4.0)
        story.tell(Stalled(1, 1 if job else 0, 3, 2.0, is_working=True))  # of a generation that is dead
        actions = story.tell(Ticked(), after=1.5)
        assert actions[1:] == [
            Close(channel),
            Send(10, PeerReplaced(job + 1, Peer(1, job + 2, None))),
            CancelJob(1, job),
        ]
        story.tell(JobEnded(1, job, RuntimeError("cancelled")))
        story.greet(1, 12, job + 1)


def test_last_figures_of_the_dead() -> None:
    """What a lost worker said last is kept, once."""
    story = Story().running()
    last = health(activity=7)
    story.tell(Received(11, Heartbeat(last)))
    assert KeepLast(last) in story.tell(ChannelLost(11))
    assert KeepLast(last) not in story.tell(JobEnded(1, 0, None))


def test_job_that_does_not_end() -> None:
    """If the channel is closed and the job goes on, it is cancelled some time later."""
    story = Story().running()
    story.tell(ChannelLost(11))
    story.beat(10, after=4.0)
    assert story.tell(Ticked()) == []
    story.beat(10, after=2.0)
    assert story.tell(Ticked()) == [CancelJob(1, 0)]
    assert story.tell(Ticked()) == []


def test_too_many_restarts() -> None:
    """Workers that die again and again end the run, by what ended the last one; old restarts do not count."""
    story = Story(restarts_max=2).running()
    error = UserCodeError("a bug", component="bolt")
    for job in range(2):
        story.greet(1, 20 + job, job)
        story.tell(Received(20 + job, Failed(error, None)))
        assert StartJob(1, job + 1) in story.tell(JobEnded(1, job, RuntimeError("lost")), after=1.0)
    story.greet(1, 22, 2)
    story.tell(Received(22, Failed(error, None)))
    assert Send(10, Stop()) in story.tell(JobEnded(1, 2, RuntimeError("lost")), after=1.0)
    story.tell(Received(10, Stopped(health())))
    assert story.tell(JobEnded(0, 0, None))[-1] == Finish(error)


def test_input_that_cannot_be_read() -> None:
    """Ends the run at once: another worker would read, or be refused, the same."""
    story = Story().running()
    error = InputError("Kafka refuses", component="spout")
    story.tell(Received(11, Failed(error, None)))
    assert Send(10, Stop()) in story.tell(JobEnded(1, 0, RuntimeError("lost")))
    story.tell(Received(10, Stopped(health())))
    assert story.tell(JobEnded(0, 0, None))[-1] == Finish(error)


def test_end_of_the_input() -> None:
    """A run ends when all workers are done, have been quiet twice, and no frame is on the way."""
    story = Story().running()
    done = health(is_done=True, sent={1: 3}, received={1: 2})
    behind = health(is_done=True, sent={0: 2}, received={0: 2})
    level = health(is_done=True, sent={0: 2}, received={0: 3}, activity=1)
    for _ in range(2):
        assert story.beat(10, done) == []
        assert story.beat(11, behind) == []  # a frame is on the way
    assert story.beat(11, level) == []  # it has come just now, and may lead to more
    stopped = story.beat(11, level)
    assert stopped[-2:] == [Send(10, Stop()), Send(11, Stop())]
    for channel in (10, 11):
        story.tell(Received(channel, Stopped(health())))
        story.tell(ChannelLost(channel))
    assert story.tell(JobEnded(0, 0, None)) == []
    assert story.tell(JobEnded(1, 0, None)) == [Finish(None)]
    assert story.supervisor.phase is RunPhase.OVER


def test_stop_waits_for_what_is_pending() -> None:
    """A stop deactivates, waits for what is pending, and no longer than it was told, or than a second stop says."""
    story = Story().running()
    assert story.tell(StopAsked(30.0)) == [Send(10, SetActive(is_active=False)), Send(11, SetActive(is_active=False))]
    for _ in range(2):
        assert story.beat(10, health(pending=1)) == []
        assert story.beat(11, health()) == []
    story.beat(11, health(), after=29.0)
    assert story.beat(10, health(pending=1)) == []
    assert story.tell(Ticked(), after=1.0) == [Send(10, Stop()), Send(11, Stop())]
    hastened = Story().running()
    hastened.tell(StopAsked(30.0))
    assert hastened.tell(StopAsked(0.0)) == [Send(10, Stop()), Send(11, Stop())]


@pytest.mark.parametrize(("starts", "secs"), [(True, 4.0), (False, 30.0)], ids=["at the start", "after a death"])
def test_missing_slots(starts: bool, secs: float) -> None:
    """If a worker does not start for long, it is said how many are there; an ordinary restart is no reason for it."""
    story = Story()
    story.greet(0, 10)
    if not starts:
        story.greet(1, 11)
        story.tell(JobEnded(1, 0, RuntimeError("lost")))
    for _ in range(int(secs) - 1):
        story.beat(10)
        assert story.tell(Ticked(), after=1.0) == []
    story.beat(10)
    (warning,) = story.tell(Ticked(), after=1.0)
    assert isinstance(warning, Warn)
    assert "1 of 2 workers have started" in warning.text


def test_worker_that_does_not_stop() -> None:
    """A worker that does not end in time has its job cancelled; the run is over when it has ended."""
    story = Story().running()
    story.tell(StopAsked(0.0))
    story.beat(11, after=9.0)
    story.tell(JobEnded(0, 0, None))
    assert story.beat(11, after=1.0) == [CancelJob(1, 0)]
    assert story.tell(JobEnded(1, 0, RuntimeError("cancelled")))[-1] == Finish(None)


def test_a_death_while_it_drains() -> None:
    """A successor comes, inactive: what is pending elsewhere waits for it, and would until the deadline."""
    story = Story().running()
    story.tell(StopAsked(30.0))
    story.beat(10, health(pending=1))
    assert StartJob(1, 1) in story.tell(JobEnded(1, 0, RuntimeError("lost")))
    assert story.tell(ActivationAsked(is_active=True)) == []
    assert story.greet(1, 12, job=1)[0] == Send(12, Welcome(2, (Peer(0, 0, ADDRESS),), is_active=False))
    for _ in range(2):
        assert story.beat(12, health()) == []
    assert story.beat(10, health()) == [Send(10, Stop()), Send(12, Stop())]


@pytest.mark.parametrize("was_active", [True, False])
def test_stop_of_a_quiet_run(*, was_active: bool) -> None:
    """What a worker reported before its spouts were deactivated is no reason to end: they may have emitted since."""
    story = Story(is_active=was_active).running()
    for channel in (10, 10, 11, 11):
        story.beat(channel, health())
    if not was_active:
        story.tell(ActivationAsked(is_active=True))
    assert story.tell(StopAsked(30.0)) == [Send(10, SetActive(is_active=False)), Send(11, SetActive(is_active=False))]
    assert story.beat(10, health()) == []
    assert story.beat(11, health(), unheard=1) == []
    assert story.beat(11, health()) == [Send(10, Stop()), Send(11, Stop())]


def test_who_has_not_started_holds_up_no_end() -> None:
    """A stop waits for a worker that has no slot only if tuples wait for it."""
    assert Story().tell(StopAsked(30.0)) == [CancelJob(0, 0), CancelJob(1, 0)]
    for sent in ({}, {1: 1}):
        story = Story()
        story.greet(0, 10)
        for _ in range(2):
            assert story.beat(10, health(sent=sent)) == []
        story.tell(StopAsked(30.0))
        stopped = story.beat(10, health(sent=sent))
        assert (CancelJob(1, 0) not in stopped) is bool(sent)
        assert (CancelJob(1, 0) in story.tell(Ticked(), after=30.0)) is bool(sent)


def test_nobody_is_started_while_it_ends() -> None:
    """A worker that dies after all were told to end is not started again."""
    story = Story().running()
    story.tell(StopAsked(0.0))
    story.tell(Received(11, Failed(BUG, None)))
    actions = story.tell(JobEnded(1, 0, RuntimeError("lost")))
    assert actions[-1] == Warn("worker 1 did not end in good order: [component 'bolt'] task 2: ValueError: a bug")
    assert not [action for action in actions if isinstance(action, StartJob)]


def test_stop_before_all_have_started() -> None:
    """Jobs that wait for a slot are cancelled; Spark's second try of a task is shown the door."""
    story = Story()
    story.greet(0, 10)
    assert story.tell(StopAsked(0.0))[1:] == [Send(10, Stop()), CancelJob(1, 0)]
    assert story.greet(0, 12) == [Close(12)]


BUG = UserCodeError("task 2: ValueError: a bug", component="bolt", cause='  File "bolt.py", line 7\nValueError')


def dies(story: Story, job: int, error: UserCodeError, *, acked: int = 0, after: float = 10.0) -> list[Action]:
    """Let worker 1 start slowly, ack so many roots, and end by an error."""
    story.now += 30.0
    story.greet(1, 100 + job, job)
    story.tell(Received(100 + job, Failed(error, health(acked=acked))), after=after)
    return story.tell(JobEnded(1, job, RuntimeError("lost")))


def story_of_deaths() -> Story:
    """Return a run that is never ended by the number of restarts, with a worker that never dies."""
    story = Story(restarts_max=1_000)
    story.greet(0, 10)
    return story


def test_same_error_again_and_again() -> None:
    """Five deaths in a row by one bug end the run by it, however slowly workers start and whatever values it names."""
    story = story_of_deaths()
    for job in range(4):
        assert StartJob(1, job + 1) in dies(story, job, BUG)
    other = UserCodeError("task 2: ValueError: of another value", component="bolt", cause=BUG.cause)
    assert Send(10, Stop()) in dies(story, 4, other)
    story.tell(Received(10, Stopped(health())))
    assert story.tell(JobEnded(0, 0, None))[-1] == Finish(other)
    assert "of another value" in story.supervisor.last_error


def test_roots_that_were_acked_before_are_no_progress() -> None:
    """A worker that lives tells again and again how many it has acked: only more of them begin the count anew."""
    story = story_of_deaths()
    for job in range(5):
        story.beat(10, health(acked=7))
        ended = dies(story, job, BUG)
    assert Send(10, Stop()) in ended


ELSEWHERE = UserCodeError("task 2: ValueError: a bug", component="bolt", cause='  File "bolt.py", line 8')


@pytest.mark.parametrize(
    ("errors", "acked", "after"),
    [((BUG, BUG), 1, 1.0), ((BUG, BUG), 0, 61.0), ((BUG, ELSEWHERE), 0, 10.0)],
    ids=["a root is acked", "it runs for long", "another error"],
)
def test_what_begins_the_count_anew(errors: tuple[UserCodeError, ...], acked: int, after: float) -> None:
    """RestartLimit without progress between them, by the same kind of error in the same component and line, are counted."""
    story = story_of_deaths()
    for job in range(20):
        assert StartJob(1, job + 1) in dies(story, job, errors[job % 2], acked=acked, after=after)


def test_killed_without_a_word() -> None:
    """Workers that told nothing before they died are counted: what they counted last is lost."""
    story = Story().running()
    story.tell(Received(11, Failed(BUG, health())))
    story.tell(ChannelLost(11))
    assert story.supervisor.killed == 0
    story.tell(ChannelLost(10))
    assert story.supervisor.killed == 1
    story.tell(JobEnded(1, 0, None))
    story.greet(1, 12, job=1)
    story.tell(ChannelLost(12))
    assert story.supervisor.killed == 2
    story.greet(1, 13, job=1)
    story.tell(Received(13, Failed(BUG, health())))
    story.greet(1, 14, job=1)  # Spark has started the task again
    story.tell(ChannelLost(14))
    assert story.supervisor.killed == 3


def test_a_worker_that_has_stopped_is_not_called_silent() -> None:
    """Spark may take a while to say that its job has ended: nobody is told meanwhile that it counts as dead."""
    story = Story().running()
    story.tell(StopAsked(0.0))
    for channel in (10, 11):
        story.tell(Received(channel, Stopped(health())))
        story.tell(ChannelLost(channel))
    assert story.tell(Ticked(), after=SILENCE_SECS + 1) == []
    assert story.tell(Ticked(), after=STOP_SECS - SILENCE_SECS) == [CancelJob(0, 0), CancelJob(1, 0)]


@pytest.mark.parametrize("other", ["is done", "has more to do", "has died"])
def test_exhausted_while_it_stops(other: str) -> None:
    """It is known in the end whether anything was left to do: if not, the run would begin from the start again."""
    story = Story().running()
    story.tell(StopAsked(30.0))
    if other == "has died":
        story.tell(JobEnded(1, 0, RuntimeError("lost")))
    for _ in range(2):
        story.beat(10, health(is_done=True))
        if other != "has died":
            story.beat(11, health(is_done=other == "is done"))
    story.tell(Ticked(), after=30.0)
    assert story.supervisor.phase is RunPhase.STOPPING
    assert story.supervisor.is_exhausted is (other == "is done")


# Workers with an owner.


def test_an_owner_is_told_of_its_workers() -> None:
    """Who joins, who is lost, and what bodies say; what it says itself goes to that generation and to no other."""
    story = Story(is_owned=True)
    assert story.greet(0, 10)[-1] == ReportJoined(0, 0)
    story.greet(1, 11)
    assert story.tell(Received(11, BodyMessage(b"news"))) == [Deliver(1, 1, b"news")]
    assert story.tell(TellAsked(1, 1, b"work")) == [Send(11, BodyMessage(b"work"))]
    assert story.tell(ChannelLost(11))[-1] == ReportLost(1, 1, "")
    assert story.tell(Received(11, BodyMessage(b"late"))) == []
    assert story.tell(TellAsked(1, 1, b"work")) == []
    story.tell(JobEnded(1, 0, RuntimeError("lost")))
    story.greet(1, 12, job=1)
    assert story.tell(TellAsked(1, 1, b"work")) == []
    assert story.tell(TellAsked(1, 2, b"work")) == [Send(12, BodyMessage(b"work"))]


def test_deaths_at_the_owners_work_do_not_end_the_run() -> None:
    """The work has bounds of its own: a transaction that kills each worker is given up before the run is."""
    story = Story(restarts_max=1, is_owned=True).running()
    for number in range(5):
        channel, generation = (11 if number == 0 else 20 + number - 1), (1 if number == 0 else number + 1)
        assert story.tell(ChannelLost(channel))[-1] == ReportLost(1, generation, "")
        story.tell(Excused(1, generation))
        assert StartJob(1, number + 1) in story.tell(JobEnded(1, number, RuntimeError("lost")))
        story.greet(1, 20 + number, job=number + 1)
    for number in range(5, 7):  # it dies idle
        story.tell(ChannelLost(19 + number))
        actions = story.tell(JobEnded(1, number, RuntimeError("lost")))
        assert (StartJob(1, number + 1) in actions) == (number == 5)
        story.greet(1, 20 + number, job=number + 1)


def test_a_job_that_does_not_come_up_has_no_excuse() -> None:
    """Only the death itself is excused: if the next job ends before it says hello, that counts as a restart."""
    story = Story(restarts_max=0, is_owned=True).running()
    story.tell(EndAsked(1, 1, "it hangs"))
    story.tell(JobEnded(1, 0, RuntimeError("cancelled")))
    assert not [action for action in story.tell(JobEnded(1, 1, RuntimeError("no"))) if isinstance(action, StartJob)]
    assert story.supervisor.phase is RunPhase.STOPPING


def test_spark_that_is_gone_ends_the_run() -> None:
    """At once, whatever restarts are left or excused: no job can start."""
    story = Story(restarts_max=9, is_owned=True).running()
    story.tell(EndAsked(1, 1, "it hangs"))
    assert not [action for action in story.tell(JobEnded(1, 0, StopError("gone"))) if isinstance(action, StartJob)]
    assert story.supervisor.phase is RunPhase.STOPPING


def test_an_owner_ends_a_worker() -> None:
    """At once, whatever it is at, and that is excused; a dead generation is not ended once more."""
    story = Story(restarts_max=0, is_owned=True).running()
    actions = story.tell(EndAsked(1, 1, "it hangs"))
    assert actions[0] == Warn("worker 1 is ended: it hangs")
    assert actions[-2:] == [ReportLost(1, 1, ""), CancelJob(1, 0)]
    assert story.tell(EndAsked(1, 1, "it hangs")) == []
    assert StartJob(1, 1) in story.tell(JobEnded(1, 0, RuntimeError("cancelled")))


def broken(peer: int) -> LinkBroken:
    """Say that the channel with a generation has ended."""
    return LinkBroken(peer, "reset")


def three() -> Story:
    """Return the story of three running workers, on the channels 10, 11 and 12."""
    story = Story(3).running()
    story.greet(2, 12)
    return story


@pytest.mark.parametrize("tellers", [(10,), (11,), (10, 11), (11, 10, 10)])
def test_broken_link(tellers: tuple[int, ...]) -> None:
    """Whoever tells, and however often: the younger end is ended by name and replaced, and nobody else."""
    story = three()
    for channel in tellers:
        assert story.tell(Received(channel, broken(1 if channel == 10 else 0)), after=LINK_SECS / 8) == []
    story.now = LINK_SECS / 8 + LINK_SECS  # since the first of them
    why = "the connection between workers 0 and 1 has broken: reset"
    assert story.tell(Ticked()) == [
        Warn(f"worker 1 is ended: {why}"),
        Close(11),
        Send(10, PeerReplaced(1, Peer(1, 3, None))),
        Send(12, PeerReplaced(1, Peer(1, 3, None))),
        CancelJob(1, 0),
    ]
    assert story.tell(Ticked(), after=2 * LINK_SECS) == []
    assert story.tell(JobEnded(1, 0, RuntimeError("cancelled"))) == [
        Warn(f"worker 1 died: {why}; it is started again"),
        StartJob(1, 1),
    ]
    assert story.supervisor.last_error == f"JobFailure: {why}"


def test_broken_link_of_the_dead() -> None:
    """A channel that breaks because its other end has died costs nothing more, whichever is heard first."""
    story = three()
    story.tell(Received(10, broken(1)))
    assert story.tell(Ticked(), after=LINK_SECS / 2) == []
    story.tell(ChannelLost(11))
    story.tell(Received(12, broken(1)))  # it had not heard of the death yet
    assert story.tell(Ticked(), after=2 * LINK_SECS) == []
    story.greet(1, 13)
    assert story.tell(Ticked(), after=2 * LINK_SECS) == []


def test_worker_that_is_cut_off_from_all() -> None:
    """If all channels of a worker break, it is the one that starts again, although it is the oldest."""
    story = three()
    for channel, peer in ((11, 0), (10, 2), (12, 0)):
        story.tell(Received(channel, broken(peer)))
    actions = story.tell(Ticked(), after=LINK_SECS)
    assert [action for action in actions if isinstance(action, CancelJob)] == [CancelJob(0, 0)]
    assert story.tell(Ticked(), after=2 * LINK_SECS) == []


def test_links_that_break_while_the_run_ends() -> None:
    """Workers end one after another, and close their channels: nobody is ended for it."""
    story = Story().running()
    story.tell(StopAsked(0.0))
    story.tell(Received(10, broken(1)))
    assert story.tell(Ticked(), after=2 * LINK_SECS) == []


def test_link_that_breaks_again_and_again() -> None:
    """Its two ends start again in turn; then it fails the run, by name. What a worker was at is no excuse."""
    story = Story(is_owned=True).running()
    generations, channels, jobs = [0, 1], [10, 11], [0, 0]
    ended = []
    for count in range(10):
        teller = count % 2
        for each in (0, 1):
            story.tell(Excused(each, generations[each]))
        story.tell(Received(channels[teller], broken(generations[1 - teller])))
        told = story.tell(Ticked(), after=LINK_SECS)
        [lost] = [action for action in told if isinstance(action, ReportLost)]
        assert lost.error == "the connection between workers 0 and 1 has broken: reset"
        ended.append(lost.worker)
        story.tell(Excused(lost.worker, lost.generation))
        done = story.tell(JobEnded(lost.worker, jobs[lost.worker], RuntimeError("cancelled")))
        if any(isinstance(action, Send) and action.message == Stop() for action in done):
            break
        generations[lost.worker], channels[lost.worker] = 2 + count, 12 + count
        jobs[lost.worker] += 1
        story.greet(lost.worker, channels[lost.worker], job=jobs[lost.worker])
    assert ended == [1, 0, 0, 0, 0]
    story.tell(Received(channels[1], Stopped(health())))
    finished = story.tell(JobEnded(1, jobs[1], None))
    assert isinstance(finished[-1], Finish)
    assert str(finished[-1].error) == "the connection between workers 0 and 1 has broken: reset"
