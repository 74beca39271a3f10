"""The interface between engine and state backend besides reads and writes.

``layer`` holds pending writes of transactions. ``table`` inspects a table without opening it. ``table_history`` and
``replay_report`` contain facts about a table for audit and replay.
"""
