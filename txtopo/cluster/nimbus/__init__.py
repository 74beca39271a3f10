"""Nimbus: the daemon that leads the cluster, or waits to."""
