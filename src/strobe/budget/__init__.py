"""`strobe budget`: what is missing to reach a target rate."""
