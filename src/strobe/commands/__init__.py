"""TODO commands"""
