"""Tuple trees: how the acker and the spout tasks track them. Pure: see the docstring of :mod:`txtopo.acking`."""
