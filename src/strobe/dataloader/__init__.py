"""`strobe dataloader`: the loader settings that keep up with the training step."""
