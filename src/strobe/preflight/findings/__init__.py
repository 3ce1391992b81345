"""Rules on the wiring, and on how the policy fits recorded frames."""
