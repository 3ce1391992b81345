"""Vision and video backbones as subjects."""
