"""A policy as files that run without torch: processors, sampling and weights in one program of an engine."""
