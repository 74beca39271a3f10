"""The display of a run: its progress, and a summary at its end."""
