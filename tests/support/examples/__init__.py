"""Answers, traces and events by hand, and strategies for any of them."""
