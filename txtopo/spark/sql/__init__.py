"""DataFrame components: spouts and bolts that Spark SQL runs."""
