"""Topologies to learn from; each runs by ``txtopo run examples.NAME``."""
