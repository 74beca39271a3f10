"""Graphs of topologies, as text, diagrams and JSON."""
