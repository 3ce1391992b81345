"""The part of Strobe that any callable needs: sections, measuring, verdicts, sameness, the frames of treatments, reports and commands.

It imports neither LeRobot nor a slice; `strobe.core.slices` finds those that are there.
"""
