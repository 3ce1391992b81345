"""LeRobot: its policies as subjects, their families, its data sets, its flags, its versions."""
