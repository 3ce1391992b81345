"""The wiring of a policy: each feature as policy, processors, data set and robot have it, from files without torch."""
