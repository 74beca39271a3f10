"""Spark sessions: what this machine must have for one, its start, and the sources that its executors get."""
