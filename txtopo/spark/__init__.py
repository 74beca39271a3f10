"""Spark sessions and jobs. The only package of the framework that imports pyspark."""
