"""A real broker for tests: started, killed, held, and gone with its parent."""

import signal
import socket

import pytest
from confluent_kafka import KafkaException

from tests.processes import python
from tests.waiting import wait_for
from txtopo.servers.kafka import KafkaBroker, KafkaCluster, KafkaTopics

pytestmark = pytest.mark.slow


@pytest.fixture
def own_kafka(kafka, tmp_path):
    """A broker that the test may end."""
    del kafka  # which skips if a broker can't be had
    with KafkaBroker(tmp_path / "kafka") as broker:
        yield broker


def test_topics_and_records(kafka):
    """Records of a transaction end with a marker that counts as an offset; deleted ones leave the end where it was."""
    kafka.create_topic("testing-kafka", 2, {"retention.ms": "-1"})
    kafka.produce("testing-kafka", [b"a", "b", (b"key", b"c")], partition=0)
    kafka.produce("testing-kafka", [b"d"], partition=1, transactional_id="testing-kafka")
    wait_for("the transaction's marker", lambda: kafka.end_offsets("testing-kafka") == {0: 3, 1: 2})
    kafka.delete_records("testing-kafka", {0: 2})
    kafka.add_partitions("testing-kafka", 3)
    assert kafka.end_offsets("testing-kafka") == {0: 3, 1: 2, 2: 0}
    kafka.delete_topic("testing-kafka")
    kafka.create_topic("testing-kafka")
    assert kafka.end_offsets("testing-kafka") == {0: 0}
    with pytest.raises(KafkaException, match="already exists"):
        kafka.create_topic("testing-kafka")


@pytest.mark.long
def test_it_restarts_on_the_same_data(own_kafka):
    """After ``kill -9`` and after an orderly stop."""
    own_kafka.create_topic("kept")
    for count, end in enumerate((own_kafka.kill, own_kafka.stop), 1):
        own_kafka.produce("kept", [b"x"] * 10)
        end()
        assert not own_kafka.is_running
        own_kafka.start()
        assert own_kafka.end_offsets("kept") == {0: 10 * count}


@pytest.mark.long
def test_a_cluster_goes_on_without_one_of_its_brokers(kafka, tmp_path):
    """Another one leads the partitions of one that is killed, with all that was acknowledged; then it comes back."""
    del kafka
    with KafkaCluster(tmp_path) as cluster:
        cluster.create_topic("kept", 2)
        cluster.produce("kept", [b"x"] * 10, 0)
        first = cluster.leader("kept", 0)
        assert first is not None
        first.kill()
        wait_for("another leader", lambda: cluster.leader("kept", 0) not in {None, first})
        cluster.produce("kept", [b"x"] * 10, 0)
        assert cluster.end_offsets("kept") == {0: 20, 1: 0}
        cluster.start()
        assert all(broker.is_running for broker in cluster.brokers)
        assert [broker.end_offsets("kept") for broker in cluster.brokers] == [{0: 20, 1: 0}] * 3


def test_a_broker_that_ends_says_why(kafka, tmp_path):
    """The error has the end of its log."""
    del kafka
    broker = KafkaBroker(tmp_path, settings={"log.segment.bytes": "none"})
    with pytest.raises(RuntimeError, match=r"none for configuration log\.segment\.bytes"):
        broker.start()


@pytest.mark.long
def test_the_command_keeps_its_data(kafka, tmp_path):
    """``txtopo kafka dev`` serves until it is asked to stop, and its next start continues with its topics."""
    del kafka
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for topic in ("first", "second:3"):
        command = ["kafka", "dev", "--port", str(port), "--folder", str(tmp_path / "kafka"), "--topic", topic]
        with python("-m", "txtopo", *command) as child:
            assert f"Kafka serves on 127.0.0.1:{port}" in child.stdout.readline()
            client = KafkaTopics(f"127.0.0.1:{port}")
            found = {
                name: len(topic.partitions) for name, topic in client.admin().list_topics(timeout=10).topics.items()
            }
            child.send_signal(signal.SIGINT)
        assert child.returncode == 0
    assert found == {"first": 1, "second": 3}
