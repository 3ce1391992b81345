"""Trials: which of two settings is better on the robot?"""
