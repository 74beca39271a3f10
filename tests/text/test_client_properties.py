"""Settings of a client: secrets are resolved where the client is made, and show nowhere else."""

import cloudpickle
import pytest

from txtopo.errors import ConfigError
from txtopo.text.client_properties import ClientProperties

SECRET = "correct horse"


def test_references_are_resolved_at_the_client(monkeypatch, tmp_path):
    """A variable's value, a file's content without the line end; anything else stays."""
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    (tmp_path / "key").write_text("of a file\n")
    properties = ClientProperties(
        {"sasl.password": "env:KAFKA_PASSWORD", "ssl.key.pem": f"file:{tmp_path}/key", "linger.ms": 5, "x": "a:b"}
    )
    assert properties.resolved() == {"sasl.password": SECRET, "ssl.key.pem": "of a file", "linger.ms": 5, "x": "a:b"}


def test_a_secret_is_neither_shown_nor_shipped(monkeypatch):
    """What pickles and what shows is the reference. A password given as it is does not show, either."""
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    properties = ClientProperties({"sasl.password": "env:KAFKA_PASSWORD"})
    properties.resolved()
    assert SECRET.encode() not in cloudpickle.dumps(properties)
    assert repr(properties) == "ClientProperties({'sasl.password': 'env:KAFKA_PASSWORD'})"
    plain = ClientProperties({"sasl.password": SECRET, "sasl.username": "me"})
    assert repr(plain) == "ClientProperties({'sasl.password': '***', 'sasl.username': 'me'})"


def test_errors_of_the_client_are_scrubbed(monkeypatch):
    """Whatever the library says."""
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    properties = ClientProperties({"sasl.password": "env:KAFKA_PASSWORD", "sasl.oauthbearer.client.secret": "hunter2"})
    assert properties.scrubbed(f"{SECRET} and hunter2 are wrong") == "*** and *** are wrong"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"enable.auto.commit": True}, "set by txtopo: offsets are not committed by the client"),
        ({1: "x"}, "not the name of a setting"),
        ({"x": ["y"]}, "a value of type list"),
    ],
)
def test_wrong_properties(properties, message):
    """The error names the setting."""
    with pytest.raises(ConfigError, match=message):
        ClientProperties(properties, {"enable.auto.commit": "offsets are not committed by the client"})


@pytest.mark.parametrize("reference", ["env:TXTOPO_NO_SUCH_VARIABLE", "file:/no/such/file"])
def test_a_missing_secret_is_named(reference):
    """By its reference."""
    with pytest.raises(ConfigError, match=reference):
        ClientProperties({"sasl.password": reference}).resolved()
