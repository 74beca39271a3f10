"""Kills of three topologies that read each other's tables, of which the first goes back."""
