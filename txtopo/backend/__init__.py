"""What the engine asks of a state backend besides reads and writes: pending writes, tables as they lie, histories.

``layer`` holds what transactions have put before it is written. ``table`` looks at a table without opening it.
``table_history`` and ``replay_report`` are facts about a table that audit and replay judge.
"""
