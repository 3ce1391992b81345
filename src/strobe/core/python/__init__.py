"""The studies as functions: of any callable, with the same verdicts and answers as the command line."""

from strobe.core.python.shown import ShownAnswer
from strobe.core.python.verbs import breakdown, compare, optimize, verify
from strobe.ladder.python import FoundRecipe

__all__ = ["FoundRecipe", "ShownAnswer", "breakdown", "compare", "optimize", "verify"]
