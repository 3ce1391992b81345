"""Doctor: what of Strobe can be trusted on this machine? A file for each area that is examined, or for two."""
