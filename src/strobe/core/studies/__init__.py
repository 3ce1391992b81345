"""The studies of any subject: breakdown, compare, verify; and what the studies of slices share."""
