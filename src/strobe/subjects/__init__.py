"""Old names of what packages of others import: the rooms are `strobe.policies` and its neighbours."""
