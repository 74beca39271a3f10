"""The soak of plain topologies: random kills; every message is acked in the end, and none before its tree was done."""
