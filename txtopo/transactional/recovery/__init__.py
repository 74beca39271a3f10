"""Durable coordinator state, and recovery from it at the start of a run.

``coordinator_state`` stores the coordinator's durable values, ``recover`` finishes or drops what the last process left
unfinished, ``divergence`` refuses state and tables that do not belong together, and ``diagnosis`` and ``repair`` bring
them together again. ``rewind`` and ``fork`` find the transactions that one can go back to; ``going_back`` is what all
of these check, and ``procedure`` in which order.
"""
