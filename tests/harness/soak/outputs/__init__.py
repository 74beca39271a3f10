"""Kills of a topology that writes Kafka and PostgreSQL."""
