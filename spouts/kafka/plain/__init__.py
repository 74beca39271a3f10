"""KafkaSpout for plain topologies: it commits offsets to a consumer group, and only behind what was acked.

- ``progress``, ``retries``, ``partitioner`` and ``translators`` decide; they are pure and read no clock.
- ``spouts.kafka.log`` is all that the spout asks of Kafka. ``spouts.kafka.confluent`` asks a real broker,
  ``txtopo.testing.MemoryLog`` a log in memory; the same conformance tests run on both.
- ``config`` has the settings, ``spout`` the spout.
"""
