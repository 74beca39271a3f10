"""Attempt numbers in parts and in words: the epoch in the upper bits, the tries within it in the lower ones."""

from __future__ import annotations

ATTEMPTS_PER_EPOCH_BITS = 32
"""Low bits of an attempt number, which count the tries within one epoch."""

FIRST_EPOCH = 1
"""The epoch of the first coordinator that ever leads a topology."""


def epoch_and_try(number: int) -> tuple[int, int]:
    """Return the epoch of an attempt number, and which try within that epoch it is, from 1."""
    return (number >> ATTEMPTS_PER_EPOCH_BITS) + FIRST_EPOCH, number & ((1 << ATTEMPTS_PER_EPOCH_BITS) - 1)


def attempt_words(number: int) -> str:
    """Return an attempt number as it is shown to people: ``attempt 1, epoch 3``."""
    epoch, tries = epoch_and_try(number)
    return f"attempt {tries}, epoch {epoch}"
