"""What policy, processors, data set and robot each say of every feature, read from files without torch."""
