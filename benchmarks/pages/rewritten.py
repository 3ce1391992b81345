"""From a command of a page to one that runs here: small, and with made-up things under the names that the page has.

A flag that the page shows stays, but for those in `DROPPED`, each with its reason. Numbers are lowered (`AT_MOST`), and
flags are added (`ADDED`). Things that a page takes for granted get the page's own names, so that they stay as they are.
"""

from __future__ import annotations

import glob
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from pages.collected import ROOT, Shown
from pages.made import AGAIN, FLOW, RECIPES, Made

# The start of a flag of a page that does not come along, and why.
DROPPED = {
    "--policy.device=cuda": "there is no card",
    "--policy.device=mps": "there is no Mac",
    "--bench": "it takes another ten seconds",
}
# Flags whose number is lowered. Lists are thinned by `_thin`.
AT_MOST = {
    "--iterations": 6, "--episodes": 4, "--eval.n_episodes": 48, "--duration": 5, "--teleop_time_s": 2, "--frames": 20,
    "--batch_size": 4, "--observations": 4, "--steps": 4, "--save_freq": 2, "--log_freq": 1, "--num_workers": 1,
}  # fmt: skip
# Command → flags that make it shorter, each unless the page has one of that name.
ADDED = {
    "breakdown": ("--iterations=3",),
    "compare": ("--iterations=6",),
    "optimize": ("--time_limit=8",),
    "batch": ("--largest=2",),
    "evaluate": ("--episodes=2",),
    "tune": ("--starts=8", "--pairs=8"),
    "verify": ("--observations=4",),
    "dataloader": ("--seconds=1", "--workers=0,1", "--skip_start_up", "--skip_what_ifs"),
    "record": ("--episodes=2", "--frames=16"),
    "replay": ("--draws=5", "--calls=5"),
    "preflight": ("--seconds=8",),
}
TRAINED = (  # of LeRobot's training: small, and without weights from the Hub
    "--policy.device=cpu", "--policy.pretrained_backbone_weights=null", "--batch_size=2", "--steps=4",
    "--num_workers=0",
)  # fmt: skip
TINY = {
    "act": (
        "--policy.dim_model=64", "--policy.dim_feedforward=128", "--policy.n_encoder_layers=2",
        "--policy.chunk_size=8", "--policy.n_action_steps=8",
    ),
    "diffusion": ("--policy.down_dims=[32,64,128]", "--policy.diffusion_step_embed_dim=32"),
}  # fmt: skip
NEW = ("--output=", "--root=", "--to=", "--fix=", "--recipe_out=")  # what a command writes, and refuses to write over
BUILT = ("breakdown", "compare", "optimize", "verify", "export", "batch", "sweep")  # commands with --policy.size
THEIRS = {
    "train": ["--policy.type=act", "--dataset.repo_id=me/data", "--dataset.root=DATASET", "--policy.push_to_hub=false"],
    "rehearse": ["--robot.type=so101_follower", "--policy.type=act", "--task=push"],
}
THEIRS |= {"dataloader": THEIRS["train"], "rollout": THEIRS["rehearse"], "preflight": THEIRS["rehearse"][:1]}
CAMERAS = "{front: {type: opencv, index_or_path: 0, width: 96, height: 96, fps: 30}}"


def choose_policy(text: str) -> str:
    """Return which of the made-up checkpoints a command means by its folder."""
    if re.search(r"strobe (rollout|rehearse|preflight) .*--robot", text) and "DATASET" not in text:
        cameras = re.findall(r"(\w+): \{type: \w+,.*?height: (\d+)", text)
        return "robot " + ",".join(f"{name}={height}" for name, height in cameras)
    rules = (
        ("misfit", r"preflight .*--fix="),
        ("factory", r"policy\.factory="),
        ("metaworld", r"env\.type=metaworld|corner2"),
        ("diffusion", r"--steps=\d|optimize.*env\.type=pusht|policy\.type=diffusion"),
        ("pi05", r"padding=.*num_inference_steps|policy\.type=pi05|num_inference_steps"),
        ("smolvla", r"strobe compare (?!.*--(variant|compile|precision|recipe|levers))"),
        ("smolvla", r"rtc\.|closed-form|policy\.num_steps|vlm_with_expert|type=smolvla|prompt_length"),
    )
    return next((kind for kind, pattern in rules if re.search(pattern, text)), "act")


class Rewriter:
    """Makes commands of pages run in ``folder``, with what is ``made``."""

    def __init__(self, made: Made, folder: Path) -> None:
        self.made, self.folder = made, folder
        self._given: dict[str, str] = {}  # name in the folder → the made-up thing

    def rewrite(self, shown: Shown) -> list[str]:
        """Return the arguments of the command, and put what it names into its folder."""
        name, *rest = shown.words
        if any(word.startswith("--help") for word in rest):
            return [name, *rest]
        ours = rest[: rest.index("--")] if "--" in rest else rest
        theirs = rest[len(ours) + 1 :]
        has_theirs = "--" in rest or name in ("train", "dataloader", "rollout", "rehearse")
        if name == "rollout":
            name = "rehearse"  # the same arguments, on an emulated arm
        ours = self._complete(name, shown, [_fill(word) for word in ours if word not in ("…", "...")])
        ours = _shrink(name, ours, theirs=False)
        kind = choose_policy(" ".join(["strobe", *shown.words]))
        if kind in FLOW and name not in ("preflight", "rehearse", "evaluate", "tune"):
            built = [f"--policy.type={kind}", "--policy.size=tiny"]
            ours = [each for word in ours for each in (built if word.startswith("--policy.path=FOLDER") else [word])]
        study = next((word for word in ours if word in ("breakdown", "compare")), "") if name == "sweep" else name
        if not _has(ours, "--results"):
            ours += [flag for flag in ADDED.get(study, ()) if not _has(ours, flag.partition("=")[0])]
        if has_theirs:
            theirs = self._rewrite_theirs(name, theirs)
        self._supply(shown, [*ours, *theirs])
        ours = [path for word in ours for path in self._expand(word)]
        return [name, *ours, *(["--", *theirs] if has_theirs else [])]

    def _complete(self, name: str, shown: Shown, words: list[str]) -> list[str]:
        """Add the subject to a finding's command, and the size to a policy that is built."""
        subject = re.compile(r"--(policy|model|results|policies|file)\b|RUN")
        if name in (*BUILT, "evaluate", "tune") and not any(map(subject.match, words)):
            words = [*words, "--policy.path=FOLDER"]
        if "delay_training" in " ".join(words):  # a finding of made-up answers names ACT, which has no such field
            words = [re.sub("=act$", "=act_relative_rtc", word) for word in words]
        kind = next((word for word in words if word.startswith("--policy.type=")), None)
        if kind and name in BUILT and not _has(words, "--policy.size") and not _has(words, "--policy.path"):
            words = [*words, "--policy.size=tiny"]
        if any(re.match("--env.type=(pusht|metaworld)$", word) for word in words):
            words = [*words, "--env.episode_length=20"]
        return ["--model.size=tiny" if word.startswith("--model.size=") else word for word in words] + (
            ["--model.size=tiny"] if _has(words, "--model.type") and "model.size" not in " ".join(words) else []
        )

    def _rewrite_theirs(self, name: str, words: list[str]) -> list[str]:
        """Return LeRobot's arguments: those that the page leaves to the reader are made up."""
        spelt, words = words, [_fill(word) for word in words]
        program = [words.pop(0)] if words and re.match(r"[a-z]", words[0]) else []
        given = [word for word in words if word not in ("…", "...")]
        if not given:
            given = list(THEIRS[name])
        if name in ("train", "dataloader"):
            kind = next((word.partition("=")[2] for word in given if word.startswith("--policy.type=")), "")
            given += [] if kind else ["--policy.type=act"]
            needed = [*THEIRS[name][1:3], *TRAINED, *TINY.get(kind or "act", ())]
        elif program == ["lerobot-record"]:
            needed = ["--dataset.push_to_hub=false", "--dataset.single_task=push", "--dataset.num_episodes=1",
                      "--dataset.episode_time_s=2", "--dataset.reset_time_s=0", "--dataset.root=recorded"]  # fmt: skip
        elif program:
            needed = ["--teleop_time_s=2"]
        elif name == "rehearse":
            if "--inference.type=rtc" in given:  # the made-up checkpoint is ACT's
                given = ["--policy.type=smolvla" if word.startswith("--policy.path=") else word for word in given]
            needed = [
                "--duration=5",
                "--task=push",
                *([f"--robot.cameras={CAMERAS}"] if _has(given, "--policy.path") else []),
            ]
        else:
            needed = ["--robot.port=/dev/ttyACM0"] if given != spelt else []  # the page left some out
        given += [flag for flag in needed if not _has(given, flag.partition("=")[0])]
        return [*program, *_shrink(name, given, theirs=True)]

    def _supply(self, shown: Shown, words: Sequence[str]) -> None:
        """Put what the words name, and no earlier command of the page has made, into the folder."""
        text = " ".join(["strobe", *shown.words, *words])
        kind = choose_policy(text)
        named = [word for word in words if not word.startswith(NEW)]
        for word in set(words) - set(named):  # an alternative to what stood before it on the page
            if (there := self.folder / word.partition("=")[2]).exists():
                self._remove(there)
        where = " ".join([*named, *dict(shown.variables).values()])
        for pattern, thing in self._things(shown.words[0], kind):
            for name in re.findall(rf"(?<![\w/.-])(?:{pattern})(?![\w/-])", where):
                self._put(name, thing)
        for name in re.findall(r"--input\.video=(\S+)", where):
            self._put(name, "video")
        if "runs" in words:
            self._put("runs/BEFORE", "breakdown")
            self._put("runs/AFTER", f"breakdown {AGAIN}")
        if "docs/examples" in text and not (self.folder / "docs").exists():
            shutil.copytree(ROOT / "docs" / "examples", self.folder / "docs" / "examples")
            grid = self.folder / "docs" / "examples" / "act-variations" / "grid.yaml"
            grid.write_text(_small_grid(grid.read_text()))

    def _things(self, command: str, kind: str) -> list[tuple[str, str]]:
        """Return patterns of names, and the made-up thing that each stands for."""
        of = {"budget": "breakdown diffusion", "replay": "rollout", "trials": "tuning"}.get(command, "breakdown")
        kind_of_recipe = kind if kind in RECIPES else "act"
        things = {
            r"(?<!dataset\.root=)FOLDER(?:_OR_HUB_ID)?|POLICY|SMOLVLA|(?<=policy\.path=)policy": (
                "runs" if command == "history" else f"policy {kind}"
            ),
            r"outputs/(?:train|act|dp)/checkpoints/last/pretrained_model": f"policy {kind}",
            r"DATASET|DATA|(?<=dataset\.root=)(?:pusht|data(?:/reach(?:480)?)?|button|FOLDER)|my/dataset": "dataset",
            r"recipe\.yaml|fast\.yaml|FILE": f"recipe {kind_of_recipe}",
            r"runs/SWEEP|runs/sweep_breakdown_pi05": "sweep",
            r"runs/\d{4}-[\w-]+|runs/BEFORE|BEFORE|runs/RUN|RUN": of,
            r"runs/AFTER|AFTER": f"breakdown {AGAIN}",
            r"runs/ROLLOUT|runs/REHEARSAL|runs/JETSON": "rollout",
            r"runs/TUNE": "tuning",
            r"EXPORT": f"export {kind}",
            r"A": "results A" if command == "evaluate" else of,
            r"B": "results B" if command == "evaluate" else f"breakdown {AGAIN}",
            r"trace\.json\.gz|TRACE": "trace",
            r"rank0\.json\.gz": "rank 0",
            r"rank1\.json\.gz": "rank 1",
            r"latencies\.csv": "latencies",
            r"my_policy\.py|pi0\.py": "factory",
            r"benchmarks/act": "history",
            r"(?<=judge=)trials": "trials",
        }
        return list(things.items())

    def _put(self, name: str, thing: str) -> None:
        """Put a made-up thing there, unless a command of the page has made what is there."""
        there = self.folder / name
        before = self._given.get(name, "" if name == "FOLDER" else thing)  # FOLDER is another one in each command
        if there.exists() and before == thing:
            return
        self._remove(there)
        self._given[name] = thing
        there.parent.mkdir(parents=True, exist_ok=True)
        source = self.made.get(thing) / ("act" if thing == "history" else "")
        if thing == "history":
            shutil.copytree(source.parent, there.parent, dirs_exist_ok=True)
        elif source.is_dir():
            shutil.copytree(source, there)
        else:
            shutil.copy(source, there)

    def _remove(self, there: Path) -> None:
        self._given.pop(str(there.relative_to(self.folder)), None)
        if there.is_dir():
            shutil.rmtree(there)
        else:
            there.unlink(missing_ok=True)

    def _expand(self, word: str) -> list[str]:
        """Return what a shell makes of ``*``: files, or the word itself."""
        if "*" not in word or "=" in word or " " in word:
            return [word]
        if "checkpoints/*" in word:
            for step in ("000100", "000200"):
                self._put(word.replace("*", step), "policy diffusion")
        return sorted(glob.glob(word, root_dir=self.folder)) or [word]


def _fill(word: str) -> str:
    """Return a word with what the page's dots stand for."""
    word = word.replace("=PYTHON", "=.venv-next/bin/python").replace("=RATE", "=5")
    flag, equals, value = word.partition("=")
    if not equals or "…" not in value:
        return word
    made = {"--policy.path": "FOLDER", "--policy.type": "act", "--env.type": "pusht", "--root": "data/new",
            "--robot.cameras": CAMERAS, "--robot.type": "so101_follower", "--dataset.repo_id": "me/data"}  # fmt: skip
    return f"{flag}={made.get(flag, value)}"


def _has(words: Sequence[str], flag: str) -> bool:
    same: Callable[[str], str] = lambda word: word.partition("=")[0].replace("-", "_")  # noqa: E731
    return any(same(word) == same(flag) for word in words)


def _shrink(command: str, words: Sequence[str], *, theirs: bool) -> list[str]:
    """Return the words without what is dropped, with lower numbers and fewer values of a grid."""
    kept = [word for word in words if not word.startswith(tuple(DROPPED))]
    small = []
    for place, word in enumerate(kept):
        flag, equals, value = word.partition("=")
        if kept[place - 1] == "--grid" and place:
            small.append(_thin(word))
        elif flag == "--batch_sizes":
            small.append("--batch_sizes=4,8")
        elif flag == "--image":
            small.append("--image=96")
        elif equals and flag in AT_MOST and re.fullmatch(r"\d+", value) and (theirs or flag != "--steps"):
            small.append(f"{flag}={min(int(value), AT_MOST[flag])}")
        else:
            small.append(word)
    for place in [place for place, word in enumerate(small) if word == "--grid"][1:]:  # two cells are a sweep
        small[place + 1] = small[place + 1].partition(",")[0]
    return small


def _thin(axis: str) -> str:
    """Return an axis of a grid with its two smallest values."""
    name, _, values = axis.partition("=")
    numbers = {
        "batch_size": "2,4",
        "model.size": "tiny",
        "model.img_size": "96,64",
        "policy.vision_backbone": "resnet18",
    }
    return f"{name}={numbers.get(name) or ','.join(values.split(',')[:2])}"


def _small_grid(text: str) -> str:
    """Return a grid's file with two small cells."""
    text = re.sub(r"policy\.type: act\n", "policy.type: act\n  policy.size: tiny\n", text)
    text = re.sub(r"iterations: \d+", "iterations: 3", text)
    text = re.sub(r"batch_size: \[.*\]", "batch_size: [2, 4]", text)
    text = re.sub(r"image_size: \[.*\]", "image_size: [64x64]", text).replace("240x320", "64x64")
    return re.sub(r"cells:\n(  - .*\n)+", "", text)
