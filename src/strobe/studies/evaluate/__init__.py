"""Evaluation: variants of one policy in a simulator, success against latency, decided as early as honesty allows."""
