"""Frames: the tuples that workers send one another, as bytes."""
