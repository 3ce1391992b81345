"""Treatments that build a part anew: torch.compile, OpenVINO, TensorRT."""
