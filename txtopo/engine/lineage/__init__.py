"""Lineage: what a run reads and writes, told to a collector in OpenLineage's events."""
