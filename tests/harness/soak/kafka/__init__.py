"""The soak of KafkaSpout on a real broker: kills, rebalances and failures, and nothing is committed that was not processed."""
