"""Commands that change what runs have left: a way back, another name, a new state."""
