"""Workers of Strobe on the nodes of a Ray cluster."""
