"""Strobe's version. A module of its own: whoever writes it into an answer need not import the whole package."""

__version__ = "0.2.0"
