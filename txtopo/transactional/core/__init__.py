"""The coordinator as a pure state machine: events in, actions out.

It decides which transactions to begin, to process in one job, to commit together, to replay and to give up, and when to
stop. It reads no clock, draws no randomness, logs nothing and does no input or output; the *run loop* does all that.

The run loop's duties
---------------------
1. Take the lead, recover what an earlier run left unfinished, then pass ``Recovered``.
2. Carry out actions in list order. A ``SaveMetadata`` is durable before the next action starts.
3. Answer each ``CreateMetadata`` with one ``MetadataCreated``.
4. Answer each ``Process`` with a ``Processed`` or ``Failed`` for each of its attempts and then one ``JobEnded``; or
   with ``JobLost`` if the whole job was lost. Late answers are harmless: the core knows which attempt is live.
5. Answer each ``Commit`` with ``Committed`` for the attempts whose writes are durable, ``Failed`` for the one that
   failed, if any, and then one ``GroupEnded``. Run the commit phases of a group one after another in its order, and
   stop at the first that fails. Those of the next group may run while a group is written.
6. Answer each ``DeadLetter`` with ``Committed`` once it is durable, and then ``GroupEnded``.
7. Pass ``Ticked`` several times a second, and ``Progressed`` for work that makes progress.
8. After ``Stop``, pass no more events.

Terms
-----
*Live attempt*: the one attempt of a transaction whose answers count. *Pending*: begun and not yet
committed. *Job*: a Spark job that runs the processing phases of consecutive transactions. *Commit group*:
consecutive processed transactions whose writes are made together.

Read next: ``transitions`` (the transition table), ``events`` and ``actions`` (the interface), ``coordinator``; then
``record``: its facts are what the report, metrics, histories and timeline of a run are made of.
"""
