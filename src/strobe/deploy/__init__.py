"""Run a policy with a recipe, outside of Strobe: in a program of one's own, or in LeRobot's.

import strobe

policy, preprocessor, postprocessor = strobe.load_policy("FOLDER_OR_HUB_ID", "recipe.yaml", watch=0.01)
action = postprocessor(policy.select_action(preprocessor(observation)))

The policy is LeRobot's own object of LeRobot's own class; the recipe's treatments are on it for as long as it lives. It
is for inference: weights may be in another precision, so train and save the baseline.
"""

from strobe.deploy.live_check import Watch
from strobe.deploy.loading import Loaded, attach_recipe_on_load, load_policy, watch
from strobe.deploy.objects import apply_recipe, revert_recipe

__all__ = ["Loaded", "Watch", "apply_recipe", "attach_recipe_on_load", "load_policy", "revert_recipe", "watch"]
