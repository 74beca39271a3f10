"""KafkaSpout for plain topologies: it commits offsets to a consumer group, and only behind what was acked.

- ``progress``, ``retries``, ``partitioner`` and ``translators`` decide; they are pure and read no clock.
- ``config`` has the settings, ``dead_letters`` the hooks for what is given up. ``spout`` polls and emits. Each of its
  other jobs has a module: ``assignment``, ``commits``, ``given_up`` and ``metrics``; ``reader`` is what these share.
- ``spouts.kafka.log`` is all that the spout asks of Kafka. ``spouts.kafka.confluent`` asks a real broker,
  ``txtopo.testing.MemoryLog`` a log in memory; the same conformance tests run on both.
"""
