"""What a topology's tables cost that is written for a day: ``python -m tests.harness.history --help``."""
