"""A small flow policy, as somebody else's package would bring it to LeRobot: a plug-in that Strobe knows nothing of."""

from .configuration_small_flow import SmallFlowConfig

__all__ = ["SmallFlowConfig"]
