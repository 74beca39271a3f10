"""What runs a topology of either kind: ``runner`` dispatches, ``control`` steers, ``metrics`` shows."""
