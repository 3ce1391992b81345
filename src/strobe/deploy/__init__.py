"""Run a policy with a recipe, outside of Strobe: in a program of one's own, or in LeRobot's.

import strobe

policy, preprocessor, postprocessor = strobe.load_policy("FOLDER_OR_HUB_ID", "recipe.yaml", watch=0.01)
action = postprocessor(policy.select_action(preprocessor(observation)))

The policy is LeRobot's own object of LeRobot's own class; the recipe's treatments are on it for as long as it lives. It
is for inference: weights may be in another precision, so train and save the baseline.
"""

from strobe.deploy.live_check import Watch
from strobe.deploy.loading import Loaded, load_policy, watch, with_recipe
from strobe.deploy.objects import put_on, take_off

__all__ = ["Loaded", "Watch", "load_policy", "put_on", "take_off", "watch", "with_recipe"]
