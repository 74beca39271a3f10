"""A cluster of three brokers, whose leaders die while runs read: every total is what was produced."""

import itertools
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, TopicPartition as Place

from spouts.kafka.confluent.connection import BrokerConnection
from spouts.kafka.confluent.log import BrokerLog
from spouts.kafka.log import StoredOffset, TopicPartition
from tests.cli.look.test_audit import audited
from tests.harness.soak.kafka.command import soak_leaders
from tests.spouts.kafka.test_consumer import patiently
from tests.spouts.kafka.test_runs import DEADLINE_SECS, Clicks, endless_child, wait_until_counted
from tests.variants import variants
from tests.waiting import wait_for
from txtopo.servers.kafka import KafkaCluster
from txtopo.text.client_properties import ClientProperties

pytestmark = pytest.mark.slow

_numbers = itertools.count()
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(kafka, tmp_path_factory) -> Iterator[KafkaCluster]:
    """Each test leaves all brokers running."""
    del kafka  # which skips if a broker can't be had
    with KafkaCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.mark.long
@pytest.mark.parametrize("kind", variants("transactional", long=["opaque"]))
def test_leaders_that_are_killed(cluster, tmp_path, kind):
    """Another broker leads their partitions, and the run goes on; so it does when the dead one comes back."""
    topic = f"leaders-{next(_numbers)}"
    cluster.create_topic(topic, PARTITIONS)
    clicks = Clicks(cluster, topic)
    with endless_child(clicks, tmp_path, kind) as child:
        for partition in range(PARTITIONS):
            clicks.produce(40, partition)
            leader = cluster.leader(topic, partition)
            assert leader is not None
            leader.kill()
            clicks.produce(40, partition)
            clicks.produce(10, partition, transactional_id=topic)
            clicks.abort(5, partition)
            wait_until_counted(clicks, tmp_path, child)
            cluster.start()
        child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE_SECS) == 0
    assert audited(tmp_path).findings == []


@pytest.mark.long
def test_a_group_whose_coordinator_moves(cluster):
    """Its stored offsets are found again, although the former coordinator lives on and refuses the question."""
    topic = f"leaders-{next(_numbers)}"
    cluster.create_topic(topic)
    partition, offsets = TopicPartition(topic, 0), Place("__consumer_offsets", 0)
    log = BrokerLog(BrokerConnection(cluster.servers, ClientProperties()), 10.0)
    patiently(lambda: log.store({partition: 3}, topic))

    def coordinator():
        return cluster.leader(offsets.topic, offsets.partition)

    def preferred_leads() -> bool:
        cluster.admin().elect_leaders(ElectionType.PREFERRED, [offsets]).result(DEADLINE_SECS)
        found = cluster.admin().list_topics(offsets.topic).topics[offsets.topic].partitions[offsets.partition]
        return found.leader == found.replicas[0]

    # Brokers that were killed before may have left another one in the lead, which no election would bring back.
    wait_for("the preferred coordinator leads", preferred_leads)
    first = coordinator()
    first.kill()
    assert patiently(lambda: log.stored([partition], topic)) == {partition: StoredOffset(3)}
    cluster.start()
    second = coordinator()
    assert second is not first

    wait_for("the first coordinator leads again", preferred_leads)
    assert coordinator() is first
    assert patiently(lambda: log.stored([partition], topic)) == {partition: StoredOffset(3)}
    log.close()


@pytest.mark.long
def test_a_plain_topology(cluster, tmp_path):
    """KafkaSpout commits nothing ahead of what was processed, and everything in the end."""
    outcome = soak_leaders(cluster, 4_000, tmp_path)
    assert outcome.records >= 4_000
    assert outcome.kills == PARTITIONS
