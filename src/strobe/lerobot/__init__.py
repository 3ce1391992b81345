"""What Strobe knows of LeRobot itself: its versions, arguments and refusals, and its configs read from their source."""
