"""The simulator: the production core, run loop and recovery in a world that fails on purpose.

A *schedule* is one seeded run: one coordinator after another, and sometimes two at once, over simulated
tables, a store in memory, a virtual clock, and jobs that run in this process. Nothing in it waits, so
thousands of schedules run in a second's time of many machines. The same seed makes the same schedule.

What can go wrong is a *workload* (see ``workloads``); each schedule draws some of them, and how often each
strikes. What must hold whatever goes wrong is a *checker* (see ``checkers``).

Two coordinators at once need no threads. Where a workload pauses one of them at a failpoint, the schedule
goes on with its successor *inside* that failpoint, and then lets the first one run on: a zombie.

Models: FoundationDB's simulation, TigerBeetle's VOPR; swarm testing (Groce et al. 2012).
"""
