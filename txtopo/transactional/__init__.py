"""Transactional topologies: a stream cut into transactions, processed many at a time, committed in txid order.

The data goes one way::

    core ─ Process(job) ─▶ jobs: tasks on Spark ─ writes ─▶ commit, in txid order ─▶ tables, journal, coordinator state
      ▲                                                                                │
      └──────────────────────── events: processed, failed, committed ──────────────────┘

- :mod:`~txtopo.transactional.core`: the coordinator, a pure state machine. Read it first.
- :mod:`~txtopo.transactional.tasks`: the tasks of one attempt in one process.
- :mod:`~txtopo.transactional.jobs`: the processing phase, many attempts to a job.
- :mod:`~txtopo.transactional.commit`: the commit phases, and the group's one write to each table.
- :mod:`~txtopo.journal`: what was committed, durable beside the tables.
- :mod:`~txtopo.transactional.recovery`: what the next run finds, finishes, or refuses.
- :mod:`~txtopo.assembly`: the run loop round the core.
"""
