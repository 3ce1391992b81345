"""The studies as functions: of any callable, with the same verdicts and answers as the command line."""

from strobe.python.shown import FoundRecipe, ShownAnswer
from strobe.python.verbs import breakdown, compare, optimize, verify

__all__ = ["FoundRecipe", "ShownAnswer", "breakdown", "compare", "optimize", "verify"]
