"""Helpers that several tests share: strategies for answers, examples of runs, subjects with a clock of their own."""
