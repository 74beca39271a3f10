"""``DeltaExpiringRows``: a table of rows that are taken out again when they expire."""
