"""`strobe optimize`: a ladder of treatments to a target rate."""
