"""A second topology that goes on from a moment of a first one: what it is made of, and how it is made."""
