"""DeltaRows: a table that transactions append rows to, or replace partitions of."""
