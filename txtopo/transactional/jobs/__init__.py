"""The processing phase: jobs of many attempts, their layout over slots, and the stages that run in the slots."""
