"""The pure decisions of a cluster: a topology's status, the supervisor of its driver, and the actions on a slot."""
