"""The part of Strobe that any callable needs, from sections and verdicts to reports and commands.

It imports neither LeRobot nor a slice; `strobe.core.slices` finds those that are there.
"""
