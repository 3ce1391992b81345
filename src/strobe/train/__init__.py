"""`strobe train` and `strobe batch`: what a training waits for."""
