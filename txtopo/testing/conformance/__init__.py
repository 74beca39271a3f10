"""Conformance classes: subclass one to hold your own spout, state or store against its contract."""
