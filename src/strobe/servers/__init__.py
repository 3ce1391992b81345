"""Policy servers: LeRobot's, openpi's, GR00T's."""
