"""The record of a run: facts, each told once, and what becomes of them: the history of each transaction."""
