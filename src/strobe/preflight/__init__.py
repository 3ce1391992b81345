"""`strobe preflight`: does a checkpoint fit its data and its robot?"""
