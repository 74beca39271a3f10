"""``KafkaState``: records of a topic, each transaction's once for readers of committed records."""
