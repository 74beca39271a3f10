"""What the timeline costs a driver, measured: ``python -m tests.harness.timeline``."""
