"""ACT with relative actions and training-time real-time chunking: ``--policy.type=act_relative_rtc``.

Importing the package registers the policy type; LeRobot imports every installed ``lerobot_policy_*`` by itself.
"""

from .configuration_act_relative_rtc import ACTRelativeRTCConfig
from .modeling_act_relative_rtc import ACTRelativeRTCPolicy
from .processor_act_relative_rtc import make_act_relative_rtc_pre_post_processors

__all__ = ["ACTRelativeRTCConfig", "ACTRelativeRTCPolicy", "make_act_relative_rtc_pre_post_processors"]
