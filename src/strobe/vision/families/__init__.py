"""A file for each kind of backbone."""
