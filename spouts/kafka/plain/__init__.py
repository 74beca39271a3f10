"""KafkaSpout for plain topologies: offsets are committed to a consumer group, and only behind what was acked.

- ``offsets``, ``retries``, ``first_poll``, ``subscription``, ``translators`` and ``lag`` decide; they are pure, know no
  clock and do not need confluent-kafka.
- ``client`` is all that the spout asks of Kafka. ``confluent`` asks a real broker, ``txtopo.testing.MemoryLog`` a log
  in memory; the same conformance tests run on both.
- ``config`` has the settings, ``spout`` the spout.
"""
