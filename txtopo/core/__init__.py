"""The coordinator as a pure state machine: events in, actions out.

It decides what is begun, processed in one job, committed together, replayed, given up, and when to stop. It reads no
clock, draws no randomness, logs nothing and does no input or output; the *run loop* does.

The run loop's duties
------------------
1. Take the lead first, recover what was left half-done, then hand in ``Recovered``.
2. Carry out actions in list order. A ``SaveMetadata`` is durable before the next action starts.
3. Answer each ``CreateMetadata`` with one ``MetadataCreated``.
4. Answer each ``Process`` with a ``Processed`` or ``Failed`` for each of its attempts and then one
   ``JobEnded``; or with ``JobLost`` where the whole job was lost. Late answers are welcome: the core
   knows which attempt is live.
5. Answer each ``Commit`` with ``Committed`` for the attempts whose writes are durable, ``Failed`` for the
   one that failed, if any, and then one ``GroupEnded``. Run the commit phases of a group one after
   another in its order, and stop at the first that fails.
6. Answer each ``DeadLetter`` with ``Committed`` once it is durable and then ``GroupEnded``.
7. Hand in ``Ticked`` several times a second, and ``Progressed`` for work that gets on.
8. After ``Stop`` hand in nothing more.

Words
-----
*Live attempt*: the one attempt of a transaction whose answers count. *Window*: the transactions from the
lowest uncommitted one on that may have begun. *Job*: a Spark job that runs the processing phases of
consecutive transactions. *Commit group*: consecutive processed transactions whose writes are made together.

Where to read on: ``transitions`` (the one table), ``events`` and ``actions`` (the door), ``coordinator``.
"""
