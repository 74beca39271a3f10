"""Spouts and bolts as users write them, and what they get: collectors, contexts, what a transaction began with."""
