"""Traces of torch.profiler, and profilers of operators and of Python."""
