"""What a task takes an answer about the topics for, if its partitions have changed meanwhile."""

from concurrent.futures import Future

from tests.spouts.kafka.plain.rig import TOPIC, Rig, filled


def test_a_late_answer_about_a_former_topic():
    """A look that began before a topic was created again and assigned says nothing about the new one.

    1. The task asks which topics exist. The answer has the topic's id.
    2. The topic is deleted and created again. The task loses its partition, and gets that of the new topic.
    3. The answer comes. Its id is not that of the partition, which was not created again since.
    """
    log = filled(3)
    rig = Rig(log, subscribe=True)
    rig.call(4)
    rig.context.holds = True
    rig.advance(2_500)
    rig.call()
    ((look, on_done),) = rig.context.offloaded
    rig.context.offloaded.clear()
    answer: Future[object] = Future()
    answer.set_result(look())
    log.delete_topic(TOPIC)
    log.create_topic(TOPIC)
    log.append(TOPIC, ["new"] * 4)
    rig.expire()
    before = len(rig.call(4))
    on_done(answer)
    rig.context.holds = False
    after = rig.call(8)
    assert (before + len(after), rig.collector.errors) == (4, [])
