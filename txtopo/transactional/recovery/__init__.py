"""Durable coordinator state, and recovery from it at the start of a run.

``coordinator_state`` stores the coordinator's durable values, ``recover`` finishes or drops what the last process left
unfinished, and ``divergence`` refuses state and tables that do not belong together. ``points`` and ``checkpoints`` are
the transactions that one can go back to, ``plans`` what is recorded before anything moves; ``operations`` do it.
"""
