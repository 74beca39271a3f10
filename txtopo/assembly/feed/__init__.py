"""What begins the transactions of a run: asked spouts, the bound on their skew, the versions of reference tables."""
