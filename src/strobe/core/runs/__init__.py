"""Runs on disk: folders, files and locks."""
