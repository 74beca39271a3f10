"""Texts for eyes: numbers, times and sizes in words."""
