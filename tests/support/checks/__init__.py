"""Checks that tests assert with: approved texts, results on disk, renderings, refusals."""
