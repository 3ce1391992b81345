"""A kept rollout again, in virtual time: as it was set up, as asked for, and in a loop without faults."""
