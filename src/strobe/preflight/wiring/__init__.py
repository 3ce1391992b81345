"""Every feature of policy, processors, data set and robot, read from files without torch."""
