"""Long-running workers: processes that a driver starts, watches, and starts again, and that talk to each other.

Spark knows nothing of them but one job of one task for each. What they do is a :class:`~txtopo.workers.body.Body`;
nothing here knows of tuples.

- :mod:`~txtopo.workers.supervision` decides, as a pure state machine: who is alive, who is started again, when the
  run ends.
- :mod:`~txtopo.workers.control` is the driver's side: it listens, and carries the decisions out.
- :mod:`~txtopo.workers.process` is the worker's side: one thread, one loop.
- :mod:`~txtopo.workers.channel` sends messages over sockets without ever blocking, :mod:`~txtopo.workers.handshake`
  lets only processes of the run in, and :mod:`~txtopo.workers.messages` are what driver and workers say.

Each start of a worker is an *epoch* with a number of its own, counted over the whole run. A worker learns its
number in the answer to its hello and from nowhere else: Spark starts a failed task again with the old closure.
Whatever comes from an epoch that is not the current one is dropped before it is read.
"""
