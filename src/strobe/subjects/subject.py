"""Old name of `strobe.policies.subject`."""

from strobe.policies.subject import Subject

__all__ = ["Subject"]
