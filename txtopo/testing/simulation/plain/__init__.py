"""The simulator of plain topologies: real workers and real supervision, in a world that fails on purpose.

Workers, their tasks, ackers and outboxes are those that run on Spark, and so is the state machine that supervises
them. The clock, the network, Spark's jobs and slow calls of bolts are simulated. A schedule calls the workers in any
order, delivers frames and news in any order that sockets allow, and draws faults:

- *Kills*: a worker dies. What it has sent arrives, or a part of it. Spark may start the same job again.
- *Errors*: a component raises an exception in the middle of its work, which ends its worker.
- *Pauses*: a worker stands still. If that lasts, it is declared dead, and may wake up all the same.
- *Losses* and *Doubles*: a frame never arrives, or twice.
- *Failures*: a bolt fails a tuple, or a slow call of it fails.
- *ClockJumps*: time passes, so that roots time out.

A ledger beside the workers knows every tuple by a token that travels with its values. It knows nothing of edge ids,
masks and incarnations' bits, and judges what the spouts are told.
"""
