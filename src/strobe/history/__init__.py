"""`strobe diff` and `strobe history`: what changed between runs."""
