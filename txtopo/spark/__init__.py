"""Spark: sessions, what runs in their tasks, and jobs of both. The only room that imports pyspark."""
