"""Simulated tables: versioned, with application transactions and optimistic conflicts, like Delta's.

A write reads the newest version, checks the fence in it, and adds the next version. If another writer has added that
version meanwhile, the write starts again. Every new version is passed to the checkers. What of the past is on disk is
in :mod:`~txtopo.testing.simulation.tables.disk`; production code deletes it.

The formats that keys, values and rows must fit are those of the states that ship, and the tables pass the same
conformance tests. A :class:`~state.memory.MemoryState` has one version, no other writers and no past, so it can't stand
for them.
"""
