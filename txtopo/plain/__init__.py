"""Plain topologies: tuple by tuple, at least once, within milliseconds.

Each *worker* is a Spark job of one task, and the driver supervises the workers itself. Spouts, bolts and ackers are
tasks in the workers. A tuple goes from task to task in a worker's one thread, or over a socket to another worker::

    run ─▶ supervision ◀── hello, heartbeats, errors ── loop     one thread of one worker process
                                                        │  tasks     spouts, bolts: emit, ack, fail
                                                        │  trees     ackers: is every tuple of a root acked?
                                                        ▼
                                                     frames ── tuples ──▶ the next worker's loop

- :mod:`~txtopo.plain.trees`: how an acker knows that a root is fully processed; read its essay first.
- :mod:`~txtopo.plain.tasks`: spout and bolt tasks, their collectors, their queues and the outbox.
- :mod:`~txtopo.plain.worker`: a worker as a pure loop over its tasks.
- :mod:`~txtopo.plain.frames`: the tuples that workers send one another, as bytes.
- :mod:`txtopo.workers`: the process around that loop, its channels, and the supervision in the driver.
- :mod:`~txtopo.assembly.plain`: a run from its start to its report.
"""
