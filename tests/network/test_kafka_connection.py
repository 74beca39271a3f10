"""What is made of the errors of Kafka's client."""

import pytest
from confluent_kafka import KafkaError

from txtopo.errors import InputError, SourceFailure
from txtopo.network.kafka_connection import KafkaConnection
from txtopo.text.client_properties import ClientProperties


@pytest.mark.parametrize(
    ("code", "text", "is_refusal"),
    [
        (KafkaError._AUTHENTICATION, "SASL authentication error", True),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "Broker: SASL Authentication failed", True),
        (KafkaError.UNSUPPORTED_SASL_MECHANISM, "Broker: Unsupported SASL mechanism", True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "Broker: Group authorization failed", True),
        (KafkaError._SSL, "SSL handshake failed: certificate verify failed", True),
        (KafkaError._SSL, "SSL handshake failed: tlsv13 alert certificate required", True),
        (KafkaError._SSL, "SSL handshake failed: Disconnected", False),
        (KafkaError._TRANSPORT, "Connection refused", False),
        (KafkaError._RESOLVE, "Failed to resolve 'nowhere:9092'", False),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", False),
    ],
)
def test_what_never_works_and_what_may_later(code, text, is_refusal):
    """A refusal is an error of the input, which ends a run; Kafka that is away, or a handshake cut off, is waited for."""
    made = KafkaConnection("s:1", ClientProperties()).failure(KafkaError(code, text))
    assert type(made) is (InputError if is_refusal else SourceFailure)
    assert text in made.message


def test_an_error_says_where_and_what_to_do():
    """The topic or group in question, and whose rights or properties to look at, on one printable line."""
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not\x1b[2J allowed")
    made = KafkaConnection("s:1", ClientProperties(), "the bolt").failure(refused, "topic 'a'")
    said = r"Kafka at s:1 refuses: topic 'a': not\x1b[2J allowed; give its user the right to it, or see the bolt's properties"
    assert made.message == said


def test_a_refusal_before_and_after_kafka_has_answered():
    """A client that was never let in gives up; one that was goes on and reports, as when a broker starts again."""
    reported = []
    connection = KafkaConnection("s:1", ClientProperties(), report=reported.append)
    complain = connection.make(lambda settings, logger: settings, {})["error_cb"]
    complain(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    with pytest.raises(InputError, match="refuses: wrong password"):
        connection.check_refusal()
    assert reported == []
    connection.admitted()
    complain(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    connection.check_refusal()
    assert [type(error) for error in reported] == [SourceFailure]
