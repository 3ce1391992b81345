"""`strobe doctor`: can this machine be trusted?"""
