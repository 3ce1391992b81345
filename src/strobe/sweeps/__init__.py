"""One study over a grid of configurations: cells in processes of their own, resumable, here or on a cluster."""
