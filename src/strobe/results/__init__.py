"""Results: the schema, and the folders that keep them."""
