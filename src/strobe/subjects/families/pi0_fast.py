"""pi0-FAST (Pertsch et al. 2025, LeRobot's ``policies/pi0_fast``): PaliGemma that writes actions as tokens.

Its parts are not named yet: it is cut along its modules.
"""

from __future__ import annotations

from strobe.subjects.families.family import Family

FAMILY = Family("pi0_fast", ("pi0_fast",), fills_cameras=True)
