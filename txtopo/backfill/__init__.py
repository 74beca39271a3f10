"""Backfill: gives states that are new in a topology their history, by an ordinary run of recorded transactions.

``part`` finds what has to run for a state, ``feed`` begins the transactions that the journal records, ``checks``
compares what they emit with what is recorded, ``trial`` asks first whether the source still has its input, and
``joining`` makes the states part of the topology.
"""
