"""The timeline: sections, clocks, probes and the Chrome trace. Knows no policy."""

from strobe.core.timeline.probe import Attached, Probe, ProbeError, attach
from strobe.core.timeline.sections import section, timed
from strobe.core.timeline.timeline import Section, Timeline

__all__ = ["Attached", "Probe", "ProbeError", "Section", "Timeline", "attach", "section", "timed"]
