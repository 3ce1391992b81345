"""A small flow policy, as somebody else's package would bring it: LeRobot's plug-in, Strobe's record, a treatment."""

from .configuration_small_flow import SmallFlowConfig

__all__ = ["SmallFlowConfig"]
