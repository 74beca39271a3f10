"""Inputs: the rows of each transaction, and what they add up to. Everyone counts the same ones."""
