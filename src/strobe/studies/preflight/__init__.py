"""Preflight: can this checkpoint work with this data and this robot?"""
