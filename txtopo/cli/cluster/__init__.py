"""The commands of a cluster: daemons, and what talks to them."""
