"""The simulator: the production core, run loop and recovery in a world that fails on purpose.

A *schedule* is one seeded run: one coordinator after another, and sometimes two at once, over simulated
tables, a store in memory, a virtual clock, and jobs that run in this process. Nothing in it waits, so
schedules are fast. The same seed makes the same schedule.

Each schedule draws some kinds of *fault* (see ``faults``) and their rates. A *checker* checks a promise (see
``checkers``).

Two coordinators at once need no threads. If a fault pauses one of them at a failpoint, the schedule runs its
successor inside that failpoint, and then lets the first one continue as a zombie.

Models: FoundationDB's simulation, TigerBeetle's VOPR; swarm testing (Groce et al. 2012).
"""
