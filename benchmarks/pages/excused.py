"""Why a command of a page cannot run here, in words. What the page itself excuses is not in this list."""

from __future__ import annotations

import importlib.util
import re

from pages.collected import Shown

# What a text holds → the reason. The first that fits is told.
REASONS: tuple[tuple[str, str], ...] = (
    (r"key=value|strobe COMMAND|type=X(?!\w)|STUDY|NAME=A,B", "a form: words stand for others"),
    (r"^strobe report$", "a mention of the command in a sentence"),
    (r"(fault|levers|python|lerobot)=…", "a form: words stand for others"),
    (r"rollout -- (policy_server|robot_client)", "a server or its client: it runs until Ctrl-C"),
    (r"--launcher=ray", "it needs a Ray cluster"),
    (r"libero", "LIBERO needs an environment of its own"),
    (r"ws://|grpc://|tcp://", "it needs a policy server"),
    (r"engine=tensorrt|graph=chunk", "it needs a CUDA card"),
    (r"--device=mps", "it needs a Mac"),
    (r"lerobot=BASE", "it needs two checkouts of LeRobot"),
    (r"smolvla.*(--compile|compile_model)", "compiling a flow policy takes minutes on a CPU"),
    (r"trained/checkpoints", "a checkpoint that the page trains for minutes"),
    (r"levers=auto", "it compiles training steps, minutes on a CPU; tests/treatments/test_levers.py has it"),
    (r"tune .*env\.type=metaworld", "MetaWorld's images take minutes without a card"),
    (r"^torchrun", "it starts several processes of a training, which tests/train does"),
    (r"--policy.type=(groot|xvla)", "its config is read from the Hub"),
)  # fmt: skip
# Packages that a command needs, which the locked environment may lack.
PACKAGES = {"aloha": "gym_aloha", "pusht": "gym_pusht", "metaworld": "metaworld"}
# Commands that say what they need where nobody names a subject, in the middle of a sentence.
_SUBJECTS = ("breakdown", "compare", "optimize", "verify", "evaluate", "tune", "batch", "export", "sweep")
_SUBJECT = re.compile(r"--(policy|model|results|policies|file)\b|--help")
_GRID = re.compile(r"--(grid|file|sweep_dir|help)\b")
_BARE = {"diff": 3, "replay": 2, "budget": 2, "report": 2, "rollout": 3, "rehearse": 3, "train": 3}


def find_reason(shown: Shown) -> str | None:
    """Return why the command cannot run here; None if it can."""
    if shown.excused is not None:
        return f"the page: {shown.excused}"
    text = shown.text
    for pattern, reason in REASONS:
        if re.search(pattern, text):
            return reason
    for kind, package in PACKAGES.items():
        if f"env.type={kind}" in text and importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    if shown.inline and is_mention(shown):
        return "a mention of a flag in a sentence, without a subject"
    return None


def is_mention(shown: Shown) -> bool:
    """Return whether a command in a sentence lacks what it works on."""
    name, *rest = shown.words
    if "--help" in " ".join(rest):
        return False
    if name == "sweep" and not any(_GRID.match(word) for word in rest):
        return True
    if name in _SUBJECTS:
        return not any(_SUBJECT.match(word) for word in rest)
    if name in ("rollout", "rehearse", "train", "dataloader"):
        return "--" not in rest
    return len(shown.words) < _BARE.get(name, 0) or (name == "diff" and rest[0].startswith("-"))
