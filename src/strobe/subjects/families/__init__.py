"""Old name of `strobe.policies.families`."""
