"""Plans: a checked graph as runs need it, which tasks there are and which of them gets a tuple."""
