"""Feetech servos: protocol 0 and the STS3215, of the SO arms."""
