"""Stores of coordinator state: SQLite, ZooKeeper and memory."""
