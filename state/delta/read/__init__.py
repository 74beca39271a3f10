"""Read tables without a topology: now, in the past, several as of one transaction, and their history."""
