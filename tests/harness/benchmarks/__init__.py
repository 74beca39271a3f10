"""Benchmarks: ``python -m tests.harness.benchmarks NAME …``, or ``all``.

A *workload* is a computation over the same rows for everyone. *Contenders* compute it: txtopo in one or more set-ups,
its *peers* (what people write by hand today) and the *limit* (one plain Spark job over the same files). All run in one
process and one Spark session, in turns: a warm-up of each, then round after round. Every total is compared with an
independent calculation before a figure counts. Machines are noisy, so compare figures within a round; absolute figures
say little.

    inputs.py       rows, files of them, and their totals
    topologies.py   txtopo's topologies
    peers.py        foreachBatch + MERGE, foreachBatch + delta-rs, and the limit
    measuring.py    what a workload is given, contenders, their turns, and their figures
    outcome.py      figures, ratios, targets: shown as tables and kept as JSON
    workloads/      what is measured
"""
