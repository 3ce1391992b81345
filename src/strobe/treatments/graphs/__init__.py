"""CUDA graphs: regions recorded once and replayed as one launch."""
