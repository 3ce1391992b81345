"""Rules on the wiring, and on the policy's actions on recorded frames."""
