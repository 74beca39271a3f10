"""Peers: what people write by hand today, each at its best tuning; and the limit, one plain Spark job."""
