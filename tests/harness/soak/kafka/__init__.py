"""The soak of KafkaSpout on a real broker: kills, rebalances and failures; no offset is committed before its record."""
