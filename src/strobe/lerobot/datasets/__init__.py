"""LeRobot's data sets: their frames, their videos, and what is wrong with them."""
