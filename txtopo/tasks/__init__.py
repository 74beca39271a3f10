"""The tasks of one attempt in one process, as plain Python that does not know where it runs.

A *batch run* holds the tasks of one attempt that live in one slot, and routes tuples between them. Spark tasks make
batch runs for the processing phase; the driver makes them for the commit phase; tests and the simulator make them
anywhere. Tuples move in *chunks*; a chunk that leaves a batch run becomes a *shuffle message*.
"""
