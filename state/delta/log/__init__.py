"""Delta's log as txtopo uses it: a table's location, its owner, the epoch that may write, and damage."""
