"""`strobe trials`: two settings on the robot, in blinded pairs of trials."""
