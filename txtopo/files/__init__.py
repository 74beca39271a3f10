"""Files that survive a power failure, what stands in them, and which txtopo can read it."""
