"""Spark: sessions and the jobs of packs. The only place in the framework that imports pyspark."""
