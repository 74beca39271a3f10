"""Tuples and rows as columns: chunks, their bytes, one stable hash, and rows that were spilled to files."""
