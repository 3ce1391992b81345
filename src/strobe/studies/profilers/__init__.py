"""Closer looks at what was measured: operators, Python."""
