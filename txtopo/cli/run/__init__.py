"""Commands that run topologies, or a broker for them."""
