"""What is made of the errors of Kafka's client."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from txtopo.errors import InputError, SourceFailure
from txtopo.kafka_errors import REPEAT_SECS, RepeatedErrors, failure


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
    made = failure(KafkaError(code, text), text, "s:1", "the spout")
    assert type(made) is (InputError if is_refusal else SourceFailure)
    assert text in made.message


def test_an_error_says_where_and_what_to_do():
    """The topic or group in question, and whose rights or properties to look at, on one printable line."""
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    made = failure(refused, "not\x1b[2J allowed", "s:1", "the bolt", where="topic 'a'")
    said = r"Kafka at s:1 refuses: topic 'a': not\x1b[2J allowed; give its user the right to it, or see the bolt's properties"
    assert made.message == said


def test_the_same_error_over_and_over():
    """Shows at once, and then now and then with how often it came; others show meanwhile."""
    now = [0.0]
    errors = RepeatedErrors(lambda: now[0])
    assert errors.due("refused (after 1ms)") == "refused (after 1ms)"
    assert [errors.due(f"refused (after {number}ms)") for number in range(50)] == [None] * 50
    assert errors.due("no leader") == "no leader"
    now[0] = REPEAT_SECS
    assert errors.due("refused (after 7ms)") == f"refused (after 7ms) (51 times in {REPEAT_SECS:.0f} s)"
    assert errors.due("refused") == "refused"  # another text
    now[0] *= 2
    assert errors.due("no leader") == "no leader"


def test_kinds_of_errors_are_bounded():
    """An error of ever new texts takes no more memory than a hundred."""
    errors = RepeatedErrors(lambda: 0.0)
    texts = ["x" * number for number in range(1, 1_000)]
    assert [errors.due(text) for text in texts] == texts
    assert errors.due(texts[-1]) is None
    assert errors.due(texts[0]) == texts[0]
