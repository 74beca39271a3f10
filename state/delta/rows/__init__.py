"""``DeltaRows``: a table to which transactions append rows, or whose partitions they replace."""
