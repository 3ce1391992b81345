"""Dynamixel servos: protocol 2 and the X series, of the Koch and OMX arms."""
