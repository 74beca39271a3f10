"""DataFrame components: topologies whose spouts and bolts are Spark SQL."""
