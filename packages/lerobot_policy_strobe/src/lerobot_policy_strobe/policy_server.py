"""LeRobot's policy server with plug-ins: ``python -m lerobot_policy_strobe.policy_server`` and its usual arguments.

The server of LeRobot 0.6.1 loads none by itself, so that neither a recipe nor another package's policy reaches it.
"""

from __future__ import annotations


def main() -> None:
    """Load LeRobot's plug-ins, this one among them, and serve."""
    from lerobot.utils.import_utils import register_third_party_plugins

    register_third_party_plugins()
    from lerobot.async_inference.policy_server import serve

    serve()  # pyright: ignore[reportCallIssue]  # reads the command line for itself


if __name__ == "__main__":
    main()
