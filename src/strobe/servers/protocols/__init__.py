"""Three protocols of policy servers behind one interface."""
