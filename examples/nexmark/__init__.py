"""Nexmark, the benchmark of stream systems: people who open auctions and bid in them, and queries over what they do.

Make events, and answer a query::

    python -m examples.nexmark.events txtopo-data/nexmark
    txtopo run examples.nexmark.q5

Each query's table ``answer`` is below ``txtopo-data/nexmark-QUERY``. ``python -m tests.harness.benchmarks.nexmark``
measures the queries, and compares each row with DuckDB's answer.
"""
