"""Benchmarks: ``python -m tests.harness.benchmarks NAME …``, or ``all``.

A *workload* is a computation over the same rows for everyone. *Contenders* compute it: txtopo in one or more set-ups,
its *peers* (what people write by hand today) and the *limit* (one plain Spark job over the same files). All run in one
process and one Spark session, in turns: a warm-up of each, then round after round. Every total is compared with an
independent calculation before a figure counts. Machines are noisy, so compare figures within a round; absolute figures
say little.

    bench.py        what a workload is given: session, sizes, a folder to work in
    inputs/         rows and their totals
    topologies.py   txtopo's topologies
    peers/          foreachBatch + MERGE, foreachBatch + delta-rs, and the limit
    measuring.py    contenders, their turns, and their figures
    outcome.py      figures, ratios, targets: what is shown and kept
    workloads/      one module a workload
"""
