"""`strobe tune`: the settings that make the task succeed, and soonest."""
