"""Policy servers of other projects and of LeRobot: a file for each protocol, and one interface for all of them."""
