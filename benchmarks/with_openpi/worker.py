"""A process in openpi's own environment that runs its PyTorch pi0.5 for `openpi.py`, over a pipe of multiprocessing.

openpi needs transformers 4.53.2 with files of its own in it, LeRobot 0.6.1 needs transformers 5: they cannot live in
one process. Strobe imports LeRobot here without the policies that need transformers.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from strobe.lerobot.versions import suit_transformers

IMAGES = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")


class Worker:
    """openpi's model and its observations; the other process calls the public methods by name."""

    def __init__(self) -> None:
        self.model: Any = None
        self.observations: list[tuple[Any, torch.Tensor]] = []
        self.norms: dict[str, Any] = {}

    def versions(self) -> dict[str, str]:
        """Return the versions of what runs here."""
        import transformers

        return {"torch": torch.__version__, "transformers": transformers.__version__}

    def build(
        self, sizes: dict[str, Any], dtype: str, side: int, weights: str, pi05: bool = True
    ) -> tuple[list[str], list[str]]:
        """Build a pi0.5, or a pi0, and fill it with LeRobot's weights.

        Args:
            sizes: those of LeRobot's model: 'vocabulary', 'vision', and of each transformer. {} for the full ones.
            side: of images, in pixels.
            weights: a safetensors file; '' leaves them random.

        Returns:
            Names of the model without weights in the file, and names in the file without a place in the model.
        """
        from openpi.models_pytorch import pi0_pytorch  # pyright: ignore[reportMissingImports]

        config = SimpleNamespace(
            pi05=pi05,
            paligemma_variant="gemma_2b",
            action_expert_variant="gemma_300m",
            dtype=dtype,
            action_dim=32,
            action_horizon=50,
            pytorch_compile_mode=None,
        )
        torch.manual_seed(0)
        # openpi makes its weights in float32 and then rounds them: 15 GB at full size, where the rounded ones take 7.
        torch.set_default_dtype(getattr(torch, dtype))
        with _use_model_sizes(sizes) if sizes else contextlib.nullcontext():
            self.model = pi0_pytorch.PI0Pytorch(config)
        torch.set_default_dtype(torch.float32)
        for name, module in self.model.named_children():
            if name != "paligemma_with_expert":  # the projections: in float32 whatever the dtype
                module.float()
        vars(self.model).pop("sample_actions", None)  # some versions compile it whatever the config says
        self.model.eval().requires_grad_(False)
        prepare = pi0_pytorch._preprocessing.preprocess_observation_pytorch
        prepare = prepare.func if isinstance(prepare, partial) else prepare  # of an earlier model
        pi0_pytorch._preprocessing.preprocess_observation_pytorch = partial(prepare, image_resolution=(side, side))
        if not weights:
            return [], []
        from safetensors import safe_open

        places = self.model.state_dict()
        with safe_open(weights, "pt") as file:
            # The key map: LeRobot's policy holds the model as `model`, all below has the same names.
            names = {name.removeprefix("model."): name for name in file.keys()}  # noqa: SIM118 - no mapping
            for name in names.keys() & places.keys():  # one at a time: all of them are 7 GB at full size
                places[name].copy_(file.get_tensor(names[name]))
        return sorted(places.keys() - names.keys()), sorted(names.keys() - places.keys())

    def observe(
        self,
        images: list[np.ndarray],
        tokens: np.ndarray,
        mask: np.ndarray,
        noise: np.ndarray,
        state: np.ndarray | None = None,
        cameras: int = len(IMAGES),
    ) -> int:
        """Keep an observation with its noise.

        Args:
            images: (1, 3, H, W) each, in [-1, 1]; those from ``cameras`` on are masked.
            tokens, mask: (1, tokens).
            noise: (1, horizon, 32).
            state: (1, 32), normalised; None for zeros.
        """
        seen = SimpleNamespace(
            images={name: torch.from_numpy(image) for name, image in zip(IMAGES, images, strict=True)},
            image_masks={name: torch.tensor([index < cameras]) for index, name in enumerate(IMAGES)},
            state=torch.zeros(1, 32) if state is None else torch.from_numpy(state),
            tokenized_prompt=torch.from_numpy(tokens),
            tokenized_prompt_mask=torch.from_numpy(mask),
            token_ar_mask=None,
            token_loss_mask=None,
        )
        self.observations.append((seen, torch.from_numpy(noise)))
        return len(self.observations)

    def save(self, folder: str, asset: str, seed: int) -> None:
        """Write a checkpoint as openpi's training does: weights, moved at random, and statistics of 32 values each."""
        import safetensors.torch
        from openpi.shared import normalize  # pyright: ignore[reportMissingImports]

        drawn = torch.Generator().manual_seed(seed)
        for weight in self.model.parameters():  # so that no gate is shut: the norms of a new model are zeros
            weight.add_(0.05 * torch.randn(weight.shape, generator=drawn).to(weight.dtype))
        safetensors.torch.save_model(self.model, f"{folder}/model.safetensors")
        made = np.random.default_rng(seed)
        for name in ("state", "actions"):
            middle, width = made.normal(size=32), made.uniform(0.5, 2, 32)
            self.norms[name] = normalize.NormStats(
                mean=middle, std=width, q01=middle - 2 * width, q99=middle + 2.5 * width
            )
        normalize.save(f"{folder}/assets/{asset}", self.norms)

    def normalize_state(self, state: np.ndarray) -> np.ndarray:
        """Return a state, (1, values), as openpi's transforms give it to the model: (1, 32)."""
        from openpi import transforms  # pyright: ignore[reportAttributeAccessIssue]

        there = transforms.Normalize(self.norms, use_quantiles=self.model.pi05)
        return transforms.pad_to_dim(there({"state": state})["state"], 32).astype(np.float32)

    def convert_to_units(self, actions: np.ndarray) -> np.ndarray:
        """Return a model's actions, (1, horizon, 32), in the robot's units, as openpi's transform does."""
        from openpi import transforms  # pyright: ignore[reportAttributeAccessIssue]

        back = transforms.Unnormalize(self.norms, use_quantiles=self.model.pi05)
        return back({"state": np.zeros((1, 32)), "actions": actions})["actions"]

    def sample(self, index: int) -> np.ndarray:
        """Return the chunk of observation ``index``, (1, 50, 32)."""
        seen, noise = self.observations[index]
        return self.model.sample_actions("cpu", seen, noise=noise).numpy()

    def stages(self, index: int) -> dict[str, np.ndarray]:
        """Return what is computed on the way to the chunk of observation ``index``."""
        from with_openpi.stages import stages

        return stages(self.model, lambda: torch.from_numpy(self.sample(index)))

    def parts(self, seconds: float) -> dict[str, float]:
        """Return the median milliseconds of each part as `strobe.breakdown` gives them, and of the whole as ''."""
        import strobe

        given = [("cpu", seen) for seen, _ in self.observations]
        answer = strobe.breakdown(self.model, given, seconds=seconds, count=False)
        (measurement,) = answer.measurements
        parts = {" > ".join(part.path): part.summary.median for part in measurement.components}
        return {"": measurement.samples.summary.median, **parts}

    def profile_chunks(self, count: int) -> list[dict[str, tuple[float, float, float]]]:
        """Return, for each of ``count`` chunks, part → (ms in our section, in torch.profiler's range, share of all)."""
        from common.attribution_study import seen_by_both

        from strobe.core.subjects.callable_subject import CallableSubject
        from strobe.core.subjects.callables import make_target

        subject = CallableSubject([make_target("openpi", self.model)], [("cpu", self.observations[0][0])])
        call, hooks, rows = subject.call("inference"), subject.hooks("inference", 1), []
        for _ in range(count + 1):  # the profiler's first start is slow
            parts, seen = seen_by_both(call, hooks)
            shares = {tuple(part.path): (part.values[0], part.share) for part in parts if not part.other}
            rows.append({" > ".join(path): (ms, seen.ranges[path], share) for path, (ms, share) in shares.items()})
        return rows[1:]

    def resize_image(self, image: np.ndarray, side: int) -> np.ndarray:
        """Return an image (H, W, 3) of bytes as openpi's transform makes it smaller, in [-1, 1]."""
        from openpi_client import image_tools  # pyright: ignore[reportMissingImports]

        return image_tools.resize_with_pad(image, side, side).astype(np.float32) / 255 * 2 - 1

    def prompt(self, task: str, state: np.ndarray) -> str:
        """Return the text that openpi's tokenizer is given for pi0.5."""
        from openpi.models import tokenizer  # pyright: ignore[reportMissingImports]

        texts: list[str] = []
        made = object.__new__(tokenizer.PaligemmaTokenizer)
        made._max_len = 200
        made._tokenizer = SimpleNamespace(encode=lambda text, **_: texts.append(text) or [1])
        made.tokenize(task, state)
        return texts[0]


@contextlib.contextmanager
def _use_model_sizes(sizes: dict[str, Any]) -> Iterator[None]:
    """Have openpi build a model of LeRobot's sizes: it has only full ones."""
    from openpi.models_pytorch import gemma_pytorch, pi0_pytorch  # pyright: ignore[reportMissingImports]

    mapping, paligemma = gemma_pytorch.CONFIG_MAPPING, gemma_pytorch.PaliGemmaForConditionalGeneration

    class Mapping:
        def __getitem__(self, name: str) -> Any:
            def make(**given: Any) -> Any:
                return mapping[name](**{**given, **({"vocab_size": sizes["vocabulary"]} if given else {})})

            return make

    def smaller(config: Any) -> Any:
        config._vocab_size = config.image_token_index = config.text_config.vocab_size = sizes["vocabulary"]
        for name, value in sizes["vision"].items():
            setattr(config.vision_config, name, value)
        return paligemma(config=config)

    gemma = SimpleNamespace(get_config=lambda variant: SimpleNamespace(**sizes[variant]))
    with (
        mock.patch.object(gemma_pytorch, "CONFIG_MAPPING", Mapping()),
        mock.patch.object(gemma_pytorch, "PaliGemmaForConditionalGeneration", smaller),
        mock.patch.object(pi0_pytorch, "_gemma", gemma),
    ):
        yield


def main() -> None:
    sys.path.append(str(Path(__file__).parents[1]))  # last, since that folder has a file called openpi.py
    pipe = Connection(int(sys.argv[1]))
    os.dup2(2, 1)  # nothing printed here may get among the benchmark's figures
    with contextlib.suppress(PackageNotFoundError):  # LeRobot may be absent in openpi's environment
        suit_transformers()
    worker = Worker()
    with contextlib.suppress(EOFError):
        while True:
            name, given = pipe.recv()
            began = time.perf_counter()
            try:
                answer = (True, getattr(worker, name)(*given), time.perf_counter() - began)
            except Exception as error:
                answer = (False, f"{type(error).__name__}: {error}", 0.0)
            pipe.send(answer)


if __name__ == "__main__":
    main()
