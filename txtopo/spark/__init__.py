"""Spark: sessions and jobs. The only place in the framework that imports pyspark."""
