"""The clients of confluent-kafka that a component makes, and what their errors mean."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txtopo.errors import ConfigError, InputError, SourceFailure
from txtopo.settings.kinds import to_servers, with_ports
from txtopo.text.client_properties import ClientProperties
from txtopo.text.extras import how_to_install
from txtopo.text.printable import escaped

REPEAT_SECS = 30.0
"""How often an error of Kafka is reported while it lasts: a client complains dozens of times a second."""

_LIBRDKAFKA_QUIET = 2
"""Log level "critical": librdkafka also reports what matters to the error callback."""

_REFUSALS = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "_AUTHENTICATION",
    }
)

_PORT = 9092
"""Of a server without one: Kafka's own."""

_PROTOCOL = re.compile(r"(?i)^(?:plaintext|ssl|sasl_plaintext|sasl_ssl)://")

_log = logging.getLogger("txtopo.kafka")


def kafka_servers(value: str | Sequence[str]) -> str:
    """Return servers as librdkafka takes them: each ``host:port``, which a protocol may precede, with commas between.

    Raises:
        ConfigError: there is none, or one is something else, of which librdkafka would make port 0.
    """
    try:
        servers = value.split(",") if isinstance(value, str) else list(value)
        to_servers([_PROTOCOL.sub("", server.strip()) for server in servers])
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"servers must be host:port of a broker, or several separated by commas, not {value!r} ({error})"
        ) from error
    return ",".join(server.strip() for server in servers)


def kafka_address(servers: str) -> str:
    """Return the address of the first of some servers, ``kafka://host:port``, by which catalogs know the topics."""
    return f"kafka://{with_ports([_PROTOCOL.sub('', servers.partition(',')[0])], _PORT)}"


class KafkaConnection:
    """Makes the clients of one component, and turns their errors into txtopo's.

    ``servers`` are ``host:port`` of some brokers, with commas between them; error messages call the component ``who``.
    ``report`` takes errors that the clients survive, where a client is polled. Attributes: ``library`` is
    confluent_kafka, ``complaints`` counts errors, and ``trouble`` is the last one.

    Raises:
        ConfigError: confluent-kafka is not installed.
    """

    def __init__(
        self,
        servers: str,
        properties: ClientProperties,
        who: str = "the spout",
        report: Callable[[SourceFailure], None] | None = None,
    ) -> None:
        try:
            import confluent_kafka.admin  # noqa: PLC0415 - an extra of the installation
        except ImportError:
            raise ConfigError(f"{who} needs confluent-kafka: {how_to_install('kafka')}") from None
        self.library: Any = confluent_kafka
        self.servers = servers
        self.properties = properties
        self.complaints = 0
        self.trouble = ""
        self._who = who
        self._report = report
        self._refusal: InputError | None = None
        self._is_admitted = False

    def make(self, kind: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
        """Return a client of a class, with secret properties merged in; ConfigError if librdkafka refuses one."""
        # Last, so that no setting replaces the callback that finds refusals.
        reserved = {"bootstrap.servers": self.servers, "error_cb": self._on_error}
        try:
            return kind({"log_level": _LIBRDKAFKA_QUIET, **settings, **reserved}, logger=_log)
        except (self.library.KafkaException, TypeError, ValueError) as error:
            # "from None": the cause's text may have a secret in it.
            raise ConfigError(f"properties: Kafka's client refuses them: {self._scrubbed(error)}") from None

    def admitted(self) -> None:
        """Record that Kafka has answered: a later refusal may pass, for example while a broker restarts."""
        self._is_admitted = True

    def check_refusal(self) -> None:
        """Raise the InputError if Kafka has refused the client and never answered it: librdkafka retries in vain."""
        if self._refusal is not None and not self._is_admitted:
            raise self._refusal

    def failure(self, error: Any, where: str = "") -> InputError | SourceFailure:
        """Return txtopo's error for a ``KafkaError``, or for a ``KafkaException`` with one.

        It is an InputError if Kafka refuses this client until somebody changes something, otherwise a SourceFailure.
        ``where`` names the topic, partition or group, if it is known.
        """
        if isinstance(error, self.library.KafkaException):
            error = error.args[0]
        if not isinstance(error, self.library.KafkaError):
            return SourceFailure(f"Kafka at {self.servers}: {self._scrubbed(error)}")
        name, text = error.name(), self._scrubbed(error.str())
        message = f"{where}: {text}" if where else text
        # Other trouble with TLS may pass, for example when a broker ends in the middle of a handshake.
        is_untrusted = name == "_SSL" and "certificate" in text
        if name not in _REFUSALS and not is_untrusted:
            return SourceFailure(f"Kafka at {self.servers}: {message}")
        cure = "give its user the right to it, or " if name.endswith("AUTHORIZATION_FAILED") else ""
        return InputError(f"Kafka at {self.servers} refuses: {message}; {cure}see {self._who}'s properties")

    def _on_error(self, error: Any) -> None:
        """Take an error of librdkafka's connections. An exception in this callback is lost, so a refusal is kept."""
        self.complaints += 1
        self.trouble = self._scrubbed(error.str())
        failure = self.failure(error)
        if isinstance(failure, InputError) and not self._is_admitted:
            self._refusal = failure
        elif self._report is not None:
            self._report(SourceFailure(failure.message))

    def _scrubbed(self, error: Any) -> str:
        return escaped(self.properties.scrubbed(str(error)))
