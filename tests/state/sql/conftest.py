"""Databases for the tests of states in them."""

from tests.postgres import place, postgres, schema

__all__ = ["place", "postgres", "schema"]
