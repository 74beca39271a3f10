"""The journal: a durable record beside the tables of the transactions that each coordinator has committed."""
