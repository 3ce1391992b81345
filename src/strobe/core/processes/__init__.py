"""Work in processes of their own: one call, several workers, forked commands, nodes of a cluster. It knows no study."""
