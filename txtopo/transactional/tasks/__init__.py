"""The tasks of one attempt in one process: plain Python that does not depend on where it runs.

A *batch run* holds the tasks of one attempt in one partition and routes tuples between them. Spark tasks create batch
runs for the processing phase, the driver creates them for the commit phase, and tests and the simulator anywhere.
Tuples move in *chunks*; a chunk that leaves a batch run becomes a *shuffle message*.
"""
