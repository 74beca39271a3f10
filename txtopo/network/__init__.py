"""Connections: between the processes of a run, from browsers and daemons, and to Kafka."""
