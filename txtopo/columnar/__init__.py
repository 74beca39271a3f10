"""Tuples and rows as columns: chunks and their encoding, stable hashes, rows that spill, and the progress of work."""
