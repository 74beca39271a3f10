"""States in tables of SQL databases: ``SqlState`` by key, ``SqlRows`` without."""
