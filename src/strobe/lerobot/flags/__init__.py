"""The subject on the command line, in LeRobot's own flags, which are read without importing it."""
