"""Kafka, ZooKeeper and buckets on this machine, for development; they end with the process that starts them."""
