"""A broker that asks for a password: it is resolved where clients are made, and is in no error, log, file or table."""

from __future__ import annotations

import logging

import pytest

from tests.spouts.kafka.run_clicks import topology_of
from tests.spouts.kafka.test_runs import Clicks, pages_in
from txtopo.errors import InputError
from txtopo.testing.inline import run_inline
from txtopo.testing.kafka import KafkaBroker
from txtopo.testing.servers import free_port

pytestmark = pytest.mark.slow

PASSWORD = "correct-horse-battery"
VARIABLE = "TXTOPO_TEST_KAFKA_PASSWORD"


@pytest.fixture
def guarded(kafka, tmp_path):
    """A broker with a second listener, for clients with a password; and that listener's address."""
    del kafka  # which skips if a broker can't be had
    broker, port = KafkaBroker(tmp_path / "kafka"), free_port()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    listeners = {name: f"{broker._all_settings()[name]},SASL_PLAINTEXT://127.0.0.1:{port}" for name in
                 ("listeners", "advertised.listeners")}  # fmt: skip
    broker._settings = {
        **listeners,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{module} required user_me="{PASSWORD}";',
    }
    broker.start()
    yield broker, f"127.0.0.1:{port}"
    broker.kill()


PROPERTIES = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": f"env:{VARIABLE}",
}


def test_a_password_from_a_variable(guarded, tmp_path, monkeypatch, caplog):
    """Reads with it; what is written to disk and to the log does not have it."""
    broker, servers = guarded
    broker.create_topic("clicks", 2)
    clicks = Clicks(broker, "clicks")
    clicks.produce(20, 0)
    monkeypatch.setenv(VARIABLE, PASSWORD)
    output = tmp_path / "out"
    with caplog.at_level(logging.DEBUG):
        run_inline(topology_of(servers, "clicks", output, "transactional", until_end=True, properties=PROPERTIES))
    assert pages_in(output) == clicks.pages
    assert PASSWORD not in caplog.text
    written = [path for path in output.rglob("*") if path.is_file()]
    assert written
    assert [path for path in written if PASSWORD.encode() in path.read_bytes()] == []


def test_a_wrong_password(guarded, tmp_path, monkeypatch, caplog):
    """Ends the run with an error that says so, without the password."""
    broker, servers = guarded
    broker.create_topic("clicks", 1)
    monkeypatch.setenv(VARIABLE, f"{PASSWORD}-wrong")
    topology = topology_of(servers, "clicks", tmp_path / "out", "transactional", properties=PROPERTIES)
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(InputError, match=r"refuses: .*see the spout's properties") as caught,
    ):
        run_inline(topology)
    assert PASSWORD not in str(caught.value) + caplog.text
