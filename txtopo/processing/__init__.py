"""The processing phase: jobs of many attempts, how a job is laid out over slots, and the stages that run in them."""
