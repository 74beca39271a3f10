"""The read side: what a run looks like from outside, as frozen values."""
