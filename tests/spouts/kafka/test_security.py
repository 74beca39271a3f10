"""A broker that asks for a password: it is resolved where clients are made, and is in no error, log, file or table."""

import logging
import re
import subprocess
from collections.abc import Iterator
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
from tests.spouts.kafka.run_clicks import KINDS, topology_of
from tests.spouts.kafka.test_runs import Clicks, pages_in
from txtopo import Config, Fields, TopologyBuilder
from txtopo.errors import InputError
from txtopo.servers.server import free_port
from txtopo.testing import FeederSpout, InlineCluster, KafkaBroker
from txtopo.testing.inline import run_inline

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
    topic = re.sub(r"\W+", "-", request.node.name).strip("-")
    guarded.broker.create_topic(topic, 2)
    return Clicks(guarded.broker, topic)


PROTOCOLS = ["SASL_PLAINTEXT", "SASL_SSL"]


def run(guarded: Guarded, clicks: Clicks, output: Path, kind: str, protocol: str, properties, **options) -> None:
    """Run a transactional topology to the end of its topic; or a plain one, which ends by an error."""
    servers = guarded.servers[protocol]
    if kind in KINDS:
        run_inline(topology_of(servers, clicks.topic, output, kind, until_end=True, properties=properties, **options))
        return
    builder, feeder = TopologyBuilder("plain"), FeederSpout(Fields("key", "value"))
    if kind == "KafkaBolt":
        builder.set_spout("in", feeder)
        builder.set_bolt("kafka", KafkaBolt(servers, clicks.topic, properties=properties)).shuffle_grouping("in")
    else:
        spout = KafkaSpout(servers, clicks.topic, properties=properties, subscribe="subscribed" in kind)
        builder.set_spout("kafka", spout)
    with InlineCluster(simulated_time=False) as cluster:
        running = cluster.submit(builder.build(), Config())
        if kind == "KafkaBolt":
            feeder.feed_no_wait(("k", "v"), 1)
        running.wait_for(lambda: False, "an error")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_password_from_elsewhere(guarded, clicks, tmp_path, monkeypatch, caplog, kind, protocol):
    """From a variable or a file: what is written to disk and to the log does not have it."""
    clicks.produce(20, 0)
    monkeypatch.setenv(VARIABLE, PASSWORD)
    secret = f"env:{VARIABLE}" if kind == "transactional" else f"file:{guarded.password}"
    with caplog.at_level(logging.DEBUG):
        properties = guarded.properties(protocol, secret)
        run(guarded, clicks, tmp_path, kind, protocol, properties, publish_group=clicks.topic)
    assert pages_in(tmp_path) == clicks.pages
    assert PASSWORD not in caplog.text
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert [path for path in written if PASSWORD.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["transactional", "KafkaSpout", "KafkaBolt"])
def test_a_wrong_password(guarded, clicks, tmp_path, monkeypatch, caplog, kind, protocol):
    """Ends the run with an error that says so, without the password, and with nothing of the client's in the log."""
    monkeypatch.setenv(VARIABLE, f"{PASSWORD}-wrong")
    properties = guarded.properties(protocol, f"env:{VARIABLE}")
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(InputError, match=r"refuses: .*uthentication.*see the (spout|bolt)'s properties") as caught,
    ):
        run(guarded, clicks, tmp_path, kind, protocol, properties)
    assert PASSWORD not in str(caught.value) + caplog.text
    assert [record.message for record in caplog.records if "rdkafka" in record.message] == []


@pytest.mark.parametrize("kind", ["transactional", "KafkaSpout"])
def test_a_certificate_that_is_not_trusted(guarded, clicks, tmp_path, kind):
    """Ends the run with an error that names the setting."""
    properties = guarded.properties("SASL_SSL", f"file:{guarded.password}")
    del properties["ssl.ca.location"]
    with pytest.raises(InputError, match=r"refuses: .*ssl\.ca\.location"):
        run(guarded, clicks, tmp_path, kind, "SASL_SSL", properties)


@pytest.mark.parametrize("kind", [*KINDS, "KafkaSpout", "KafkaSpout, subscribed"])
def test_a_topic_that_may_not_be_read(guarded, clicks, tmp_path, kind):
    """Ends the run with an error that names the topic and the right."""
    clicks.produce(5, 0)
    place = ResourceType.TOPIC, clicks.topic, ResourcePatternType.LITERAL
    denied = AclBinding(*place, "User:me", "*", AclOperation.READ, AclPermissionType.DENY)
    for answer in guarded.broker.admin().create_acls([denied]).values():
        answer.result(60)
    properties = guarded.properties("SASL_PLAINTEXT", f"file:{guarded.password}")
    refusal = f"refuses: topic '{clicks.topic}'.*authorization failed; give its user the right"
    with pytest.raises(InputError, match=refusal):
        run(guarded, clicks, tmp_path, kind, "SASL_PLAINTEXT", properties)


def test_plain_topologies(guarded, clicks, caplog):
    """KafkaSpout and KafkaBolt, too, take a password from a file, over TLS."""
    copy = f"{clicks.topic}-copy"
    guarded.broker.create_topic(copy)
    clicks.produce(20, 0)
    servers, properties = guarded.servers["SASL_SSL"], guarded.properties("SASL_SSL", f"file:{guarded.password}")
    builder = TopologyBuilder("copying")
    builder.set_spout("in", KafkaSpout(servers, clicks.topic, Fields("key", "value"), properties=properties))
    builder.set_bolt("out", KafkaBolt(servers, copy, properties=properties)).shuffle_grouping("in")
    with caplog.at_level(logging.DEBUG), InlineCluster(simulated_time=False) as cluster:
        running = cluster.submit(builder.build(), Config())
        running.wait_for(lambda: sum(guarded.broker.end_offsets(copy).values()) >= 20, "the copies")
        running.stop()
    assert PASSWORD not in caplog.text
