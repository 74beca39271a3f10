"""Supervision decides which workers are alive, which start again, and when the run ends.

:mod:`~txtopo.plain.supervision.supervisor` decides, as a pure state machine. :mod:`~txtopo.plain.supervision.control`
is the driver's side of the sockets: it listens, and carries the decisions out.

Each start of a worker is an *incarnation* with a number of its own, counted over the whole run. A worker learns its
number only from the answer to its hello, not from its closure: Spark starts a failed task again with the old one. What
an earlier incarnation sends is dropped before it is read.
"""
