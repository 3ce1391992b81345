"""Open loop: what a policy predicts on recorded frames, which wiring explains it, and what it has learnt."""
