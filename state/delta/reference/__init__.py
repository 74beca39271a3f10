"""Reference tables: Delta tables that a topology only reads, held in memory by each process that looks things up."""
