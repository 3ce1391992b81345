"""Feetech and Dynamixel servos, byte by byte: registers, packets and a shaft. Nothing but Python is needed."""
