"""A worker: the pure loop over its tasks."""
