"""Recipes of Strobe in LeRobot's own commands, which import this module by its name.

A checkpoint that holds ``recipe.yaml``, or ``STROBE_RECIPE=recipe.yaml``, gives the treated policy. See the README.
"""

from lerobot_policy_strobe.hook import install

install()
