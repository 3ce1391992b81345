"""Variants of one subject, in alternation, judged."""
