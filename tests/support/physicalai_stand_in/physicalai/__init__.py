"""A stand-in for physicalai, which cannot be installed beside LeRobot: it wants another transformers."""
