"""A rollout that Strobe recorded, for viewers of recordings: Rerun and Foxglove."""
