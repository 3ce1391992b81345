"""The play of episodes in a simulator: what is played, in which order, by whom, and true to which time."""
