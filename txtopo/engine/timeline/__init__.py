"""The timeline of a run: every attempt with its moments, every write, samples once a second, and the last errors.

It is a folder in the metadata directory, ``timeline-TOPOLOGY``, that any process may read while the run goes on::

    EPOCH.records    a ring of 32,768 records: attempts, writes, the beginnings of runs
    EPOCH.samples    a ring of samples, an hour of them
    EPOCH.errors     the last hundred errors, as JSON
    EPOCH.run        whose run it is, its graph and settings, and why it ended, as JSON
    past/NUMBER      the same of an earlier run, with its own records and samples only

A run costs the driver's threads an append to a bounded queue for each attempt; one thread of its own does the rest four
times a second. The timeline is only for people. If the disk is full its records are lost, and if the disk hangs only
that thread hangs. A kill -9 loses at most a quarter of a second.

Each epoch has files of its own, so a coordinator that has lost the lead can't disturb its successor:

1. The coordinator of epoch 4 stalls; that of epoch 5 copies the records of 4, goes on, and puts the files of 4 away.
2. The coordinator of epoch 4 resumes. It goes on writing into files that have another name, or none.
3. If it had not made its files yet, it finds those of 5 and makes none. If it looked for them just before they were
   made, it makes files of epoch 4 beside them: readers take the highest epoch, and the next run puts the others away.
"""
