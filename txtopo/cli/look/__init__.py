"""Commands that show what there is, and write nothing."""
