"""TODO lerobot/commands"""
