"""Spouts over Kafka topics; they need confluent-kafka: ``pip install 'txtopo[kafka]'``."""
