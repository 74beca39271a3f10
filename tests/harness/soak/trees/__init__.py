"""The soak of plain topologies: kills at random, and every message acked in the end, none before its tree was done."""
