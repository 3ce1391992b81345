"""Episodes and evaluations as data."""
