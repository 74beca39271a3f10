"""Benchmarks: ``python -m tests.harness.benchmarks NAME …``, or ``all``.

A *workload* is what is computed, over the same rows by everyone. *Contenders* are those who compute it: txtopo in
one or more set-ups, its *peers* (what people write by hand today) and the *limit* (one plain Spark job over the
same files). All of them run in one process and one Spark session, in turns: after a warm-up of each, round after
round. Every total is compared with a calculation of its own before a figure counts. Machines are noisy: ratios
within a round count, absolute figures say little.

    bench.py        what a workload is given: session, sizes, a folder to work in
    inputs/         rows, and what they add up to
    topologies.py   the topologies of txtopo that are measured
    peers/          foreachBatch + MERGE, foreachBatch + delta-rs, and the limit
    measuring.py    contenders, their turns, and the lines that come of them
    outcome.py      figures, ratios, targets: what is shown and kept
    workloads/      one module a workload
"""
