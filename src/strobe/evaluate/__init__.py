"""`strobe evaluate`: success in a simulator, in paired episodes."""
