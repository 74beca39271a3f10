"""Tuples and rows as columns: chunks and their encoding, stable hashes, and rows that spill to files."""
