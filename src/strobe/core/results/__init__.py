"""Results as plain data: the schema of every answer."""
