"""`strobe rehearse`: lerobot-rollout on an emulated arm."""
