"""`strobe export`: a whole policy as files that run without torch."""
