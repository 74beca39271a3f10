"""Databases for the tests of spouts that read them."""

from tests.postgres import place, postgres, schema

__all__ = ["place", "postgres", "schema"]
