"""Nexmark's queries beside DuckDB's answers: ``python -m tests.harness.benchmarks.nexmark q5 q7``."""
