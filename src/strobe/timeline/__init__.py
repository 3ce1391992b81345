"""The timeline: sections, clocks, probes and the Chrome trace. Knows no policy."""

from strobe.timeline.probe import Attached, Probe, ProbeError, attach
from strobe.timeline.sections import section, timed
from strobe.timeline.timeline import Section, Timeline

__all__ = ["Attached", "Probe", "ProbeError", "Section", "Timeline", "attach", "section", "timed"]
