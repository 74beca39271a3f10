"""Workers: processes in Spark's slots that last as long as a run, and the driver's supervision of them.

A plain topology runs in workers, and so does a transactional one in real-time mode. What a worker does is its
:class:`~txtopo.workers.process.Body`; everything else is here, and the same for both:

- :mod:`~txtopo.workers.process`: a worker's process, one thread that waits for all of its sockets at once;
  :mod:`~txtopo.workers.peers` exchanges frames with the other workers, as :mod:`~txtopo.workers.peer_directory` knows
  them and :mod:`~txtopo.workers.peer_connections` connects to them; :mod:`~txtopo.workers.watcher` reports for it while
  it can't.
- :mod:`~txtopo.workers.handshake` admits only processes of the run; :mod:`~txtopo.workers.messages` is what driver and
  workers say to each other afterwards.
- :mod:`~txtopo.workers.supervisor` decides which workers are alive, which start again, and when the run ends, as a pure
  state machine; :mod:`~txtopo.workers.control` is the driver's side of the sockets, and carries the decisions out.

Each start of a worker is a *generation* with a number of its own, counted over the whole run. A worker learns its
number only from the answer to its hello, not from its closure: Spark starts a failed task again with the old one. What
an earlier generation sends is dropped before it is read.
"""
