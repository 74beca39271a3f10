"""The processing phase: jobs of many attempts, their layout over partitions, and the stages that run in these."""
