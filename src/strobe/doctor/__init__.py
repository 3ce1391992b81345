"""`strobe doctor` and `strobe tour`: can this machine be trusted?"""
