"""Spout and bolt tasks of a worker: their collectors and contexts, the queue in front of each, and what leaves them."""
