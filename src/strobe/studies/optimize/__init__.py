"""The ladder: what makes a policy as fast as needed."""
