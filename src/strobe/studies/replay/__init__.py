"""A recorded rollout again, in virtual time: as it was set up, as requested, and in a loop without faults."""
