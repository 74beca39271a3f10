"""The simulator of plain topologies: real workers and real supervision, in a world that fails on purpose.

Workers, tasks, ackers and outboxes are those that run on Spark, and so is the state machine that supervises them. The
clock, the network, Spark's jobs and slow calls of bolts are simulated. A schedule calls the workers in any order,
delivers frames and messages in any order that sockets allow, and draws faults:

- *Kills*: a worker dies. All or some of the frames that it has sent arrive. Spark may start the same job again.
- *Errors*: a component raises an exception in the middle of its work, which ends its worker.
- *Pauses*: a worker stops for a while. After a long pause it counts as dead, and yet it resumes.
- *Links*: the connection between two living workers breaks. The first frames on it arrive. One end notices, or both.
- *Losses* and *Doubles*: a frame never arrives, or arrives twice.
- *Failures*: a bolt fails a tuple, or a slow call of a bolt fails.
- *ClockJumps*: time passes, so that roots time out.

A ledger beside the workers knows every tuple by a token that travels with its values. It knows nothing of edge ids or
masks. From the tokens alone it judges every ack and failure that a spout receives.
"""
