"""Treatments that compile a part, or build an engine for it: torch.compile, OpenVINO, TensorRT."""
