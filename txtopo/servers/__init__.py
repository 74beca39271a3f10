"""Kafka, ZooKeeper and buckets on this machine, for development and tests; they end with the process that starts them."""
