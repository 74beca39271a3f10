"""The shell round the core: it carries out what the core decides, durably and in order.

``ledger`` keeps what outlives a process, ``recovery`` puts it and the tables in order at the start,
``source`` asks the spout, ``groups`` commits, and ``shell`` is the loop that joins them.
"""
