"""Episodes that are played: by whom, in which order, on which clock."""
