"""Plain topologies: tuple by tuple, at least once, within milliseconds.

The driver has one Spark job of one task for each *worker* and supervises the workers itself. Spouts, bolts and ackers
are tasks in the workers, and a tuple goes from task to task in a worker's one thread, or over a socket to the next
worker::

    run ─▶ supervision ◀── hello, heartbeats, errors ── loop     one thread of one worker process
                                                        │  tasks     spouts, bolts: emit, ack, fail
                                                        │  trees     ackers: is every tuple of a root acked?
                                                        ▼
                                                     transport ── tuples ──▶ the next worker's loop

- :mod:`~txtopo.plain.trees`: how a root is known to be fully processed; its essay comes first.
- :mod:`~txtopo.plain.tasks`: what spout and bolt tasks are given, their queues, and what leaves them.
- :mod:`~txtopo.plain.loop`: a worker, first as a pure loop over its tasks, then as a process.
- :mod:`~txtopo.plain.transport`: sockets between processes of one run, that never block.
- :mod:`~txtopo.plain.supervision`: who is alive, who is started again, when the run ends.
- :mod:`~txtopo.plain.run`: a run from its start to its report.
"""
