"""A broker that asks for a password: it is resolved where clients are made, and is in no error, log, file or table."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from committers.kafka import KafkaBolt
from spouts.kafka import KafkaSpout
from tests.spouts.kafka.run_clicks import topology_of
from tests.spouts.kafka.test_runs import Clicks, pages_in
from txtopo import Config, Fields, TopologyBuilder
from txtopo.errors import InputError
from txtopo.testing import FeederSpout, InlineCluster, KafkaBroker
from txtopo.testing.inline import run_inline
from txtopo.testing.servers import free_port

pytestmark = pytest.mark.slow

PASSWORD = "correct-horse-battery"
VARIABLE = "TXTOPO_TEST_KAFKA_PASSWORD"
STORE_PASSWORD = "store-password"
JAAS = "org.apache.kafka.common.security"


@attrs.frozen
class Guarded:
    """A broker with a listener for everybody, which the test uses, and two for clients with a password."""

    broker: KafkaBroker
    servers: dict[str, str]
    """By their security protocol."""
    certificate: Path
    password: Path

    def properties(self, protocol: str, secret: str) -> dict[str, str]:
        """Return what a client needs."""
        given = {"security.protocol": protocol, "sasl.username": "me", "sasl.password": secret}
        if protocol == "SASL_PLAINTEXT":
            return {**given, "sasl.mechanism": "PLAIN"}
        return {**given, "sasl.mechanism": "SCRAM-SHA-512", "ssl.ca.location": str(self.certificate)}


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Return a store with a key and a certificate that it has signed itself, and the certificate alone."""
    store, certificate = folder / "broker.p12", folder / "broker.pem"
    access = ["-keystore", str(store), "-storepass", STORE_PASSWORD, "-alias", "broker"]
    names = ["-dname", "CN=broker", "-ext", "san=ip:127.0.0.1", "-ext", "bc:c"]
    made = ["keytool", "-genkeypair", "-keyalg", "RSA", "-storetype", "PKCS12", *names, *access]
    subprocess.run(made, check=True, capture_output=True)
    exported = ["keytool", "-exportcert", "-rfc", *access]
    certificate.write_bytes(subprocess.run(exported, check=True, capture_output=True).stdout)
    return store, certificate


@pytest.fixture(scope="module")
def guarded(kafka, tmp_path_factory) -> Iterator[Guarded]:
    """It asks for the password in plain text on one listener, and over TLS on the other."""
    del kafka  # which skips if a broker can't be had
    folder = tmp_path_factory.mktemp("guarded")
    store, certificate = make_certificate(folder)
    ports = {protocol: free_port() for protocol in ("SASL_PLAINTEXT", "SASL_SSL")}
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{JAAS}.plain.PlainLoginModule required user_me="{PASSWORD}";'
        ),
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule required;",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": store,
        "ssl.keystore.password": STORE_PASSWORD,
    }
    password = folder / "password"
    password.write_text(f"{PASSWORD}\n")
    servers = {protocol: f"127.0.0.1:{port}" for protocol, port in ports.items()}
    with KafkaBroker(folder / "kafka", settings=settings, listeners=ports) as broker:
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion("me", how, PASSWORD.encode())
        for answer in broker.admin().alter_user_scram_credentials([user]).values():
            answer.result(60)
        yield Guarded(broker, servers, certificate, password)


@pytest.fixture
def clicks(guarded, request) -> Clicks:
    topic = request.node.name.replace("[", "-").replace("]", "")
    guarded.broker.create_topic(topic, 2)
    return Clicks(guarded.broker, topic)


PROTOCOLS = ["SASL_PLAINTEXT", "SASL_SSL"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["transactional", "opaque"])
def test_a_password_from_elsewhere(guarded, clicks, tmp_path, monkeypatch, caplog, kind, protocol):
    """From a variable or a file: what is written to disk and to the log does not have it."""
    clicks.produce(20, 0)
    monkeypatch.setenv(VARIABLE, PASSWORD)
    secret = f"env:{VARIABLE}" if kind == "transactional" else f"file:{guarded.password}"
    options = {"until_end": True, "properties": guarded.properties(protocol, secret), "publish_group": clicks.topic}
    topology = topology_of(guarded.servers[protocol], clicks.topic, tmp_path, kind, **options)
    with caplog.at_level(logging.DEBUG):
        run_inline(topology)
    assert pages_in(tmp_path) == clicks.pages
    assert PASSWORD not in caplog.text
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert [path for path in written if PASSWORD.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_password(guarded, clicks, tmp_path, monkeypatch, caplog, protocol):
    """Ends the run with an error that says so, without the password."""
    monkeypatch.setenv(VARIABLE, f"{PASSWORD}-wrong")
    properties = guarded.properties(protocol, f"env:{VARIABLE}")
    topology = topology_of(guarded.servers[protocol], clicks.topic, tmp_path, "transactional", properties=properties)
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(InputError, match=r"refuses: .*see the spout's properties") as caught,
    ):
        run_inline(topology)
    assert PASSWORD not in str(caught.value) + caplog.text


def test_a_certificate_that_is_not_trusted(guarded, clicks, tmp_path):
    """Ends the run with an error that names the setting."""
    properties = guarded.properties("SASL_SSL", f"file:{guarded.password}")
    del properties["ssl.ca.location"]
    topology = topology_of(guarded.servers["SASL_SSL"], clicks.topic, tmp_path, "transactional", properties=properties)
    with pytest.raises(InputError, match=r"refuses: .*ssl\.ca\.location"):
        run_inline(topology)


@pytest.fixture
def forbidden(guarded, clicks) -> Clicks:
    """A topic that nobody may read or write any more."""
    clicks.produce(5, 0)
    for operation in (AclOperation.READ, AclOperation.WRITE):
        denied = AclBinding(
            ResourceType.TOPIC,
            clicks.topic,
            ResourcePatternType.LITERAL,
            "User:me",
            "*",
            operation,
            AclPermissionType.DENY,
        )
        for answer in guarded.broker.admin().create_acls([denied]).values():
            answer.result(60)
    return clicks


@pytest.mark.parametrize("kind", ["transactional", "opaque"])
def test_a_topic_that_may_not_be_read(guarded, forbidden, tmp_path, kind):
    """Ends the run with an error that names the topic and the right."""
    properties = guarded.properties("SASL_PLAINTEXT", f"file:{guarded.password}")
    options = {"properties": properties, "until_end": True}
    topology = topology_of(guarded.servers["SASL_PLAINTEXT"], forbidden.topic, tmp_path, kind, **options)
    with pytest.raises(
        InputError, match=f"refuses: topic '{forbidden.topic}'.*authorization failed; give its user the right"
    ):
        run_inline(topology)


@pytest.mark.parametrize("subscribe", [False, True])
def test_a_topic_that_a_plain_topology_may_not_read(guarded, forbidden, subscribe):
    """Ends the run, too."""
    properties = guarded.properties("SASL_PLAINTEXT", f"file:{guarded.password}")
    servers = guarded.servers["SASL_PLAINTEXT"]
    builder = TopologyBuilder("reading")
    builder.set_spout("in", KafkaSpout(servers, forbidden.topic, subscribe=subscribe, properties=properties))
    with (
        pytest.raises(
            InputError, match=f"refuses: topic '{forbidden.topic}'.*authorization failed; give its user the right"
        ),
        InlineCluster(simulated_time=False) as cluster,
    ):
        cluster.submit(builder.build(), Config()).wait_for(lambda: False, "an error")


def copying(guarded: Guarded, topic: str, secret: str):
    """Return a plain topology that copies a topic to another."""
    servers, properties = guarded.servers["SASL_SSL"], guarded.properties("SASL_SSL", secret)
    builder = TopologyBuilder("copying")
    builder.set_spout("in", KafkaSpout(servers, topic, Fields("key", "value"), properties=properties))
    builder.set_bolt("out", KafkaBolt(servers, f"{topic}-copy", properties=properties)).shuffle_grouping("in")
    return builder.build()


def wait_for_copies(guarded: Guarded, topic: str) -> Callable[[], bool]:
    return lambda: sum(guarded.broker.end_offsets(f"{topic}-copy").values()) >= 20


def test_plain_topologies(guarded, clicks, caplog):
    """KafkaSpout and KafkaBolt, too, take a password from a file, over TLS."""
    guarded.broker.create_topic(f"{clicks.topic}-copy")
    clicks.produce(20, 0)
    with caplog.at_level(logging.DEBUG), InlineCluster(simulated_time=False) as cluster:
        running = cluster.submit(copying(guarded, clicks.topic, f"file:{guarded.password}"), Config())
        running.wait_for(wait_for_copies(guarded, clicks.topic), "the copies")
        running.stop()
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_password_of_a_plain_topology(guarded, clicks, monkeypatch, caplog, protocol):
    """Ends the run, too, with an error that says so, without the password, and with nothing else in the log."""
    monkeypatch.setenv(VARIABLE, f"{PASSWORD}-wrong")
    builder = TopologyBuilder("reading")
    properties = guarded.properties(protocol, f"env:{VARIABLE}")
    builder.set_spout("in", KafkaSpout(guarded.servers[protocol], clicks.topic, properties=properties))
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(InputError, match=r"'in'.* refuses: .*uthentication.*see the spout's properties") as caught,
        InlineCluster(simulated_time=False) as cluster,
    ):
        cluster.submit(builder.build(), Config()).wait_for(lambda: False, "an error")
    assert PASSWORD not in str(caught.value) + caplog.text
    assert [each.message for each in caplog.records if "rdkafka" in each.message] == []


def test_a_wrong_password_of_a_bolt(guarded, clicks, monkeypatch):
    """Ends the run, too."""
    monkeypatch.setenv(VARIABLE, f"{PASSWORD}-wrong")
    properties = guarded.properties("SASL_PLAINTEXT", f"env:{VARIABLE}")
    feeder = FeederSpout(Fields("key", "value"))
    builder = TopologyBuilder("writing")
    builder.set_spout("in", feeder)
    bolt = KafkaBolt(guarded.servers["SASL_PLAINTEXT"], clicks.topic, properties=properties)
    builder.set_bolt("out", bolt).shuffle_grouping("in")
    with (
        pytest.raises(InputError, match=r"'out'.* refuses: .*uthentication.*see the bolt's properties"),
        InlineCluster(simulated_time=False) as cluster,
    ):
        running = cluster.submit(builder.build(), Config())
        feeder.feed_no_wait(("k", "v"), 1)
        running.wait_for(lambda: False, "an error")


def test_a_certificate_that_a_plain_topology_does_not_trust(guarded, clicks):
    """Ends the run, too, with an error that names the setting."""
    properties = guarded.properties("SASL_SSL", f"file:{guarded.password}")
    del properties["ssl.ca.location"]
    builder = TopologyBuilder("reading")
    builder.set_spout("in", KafkaSpout(guarded.servers["SASL_SSL"], clicks.topic, properties=properties))
    with (
        pytest.raises(InputError, match=r"refuses: .*ssl\.ca\.location"),
        InlineCluster(simulated_time=False) as cluster,
    ):
        cluster.submit(builder.build(), Config()).wait_for(lambda: False, "an error")
