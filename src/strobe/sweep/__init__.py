"""`strobe sweep`: one study over a grid of settings."""
