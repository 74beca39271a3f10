"""The journal: which transactions each coordinator has committed, durable beside the tables."""
