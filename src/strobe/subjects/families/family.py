"""Old name of `strobe.policies.families.family`."""

from strobe.policies.families.family import *  # noqa: F403
