"""The decisions of a cluster, pure: what becomes of a topology, who runs it, and what is done with a slot."""
