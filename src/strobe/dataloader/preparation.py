"""Before a search: how many samples per second the training step takes, the dataset's facts, and its page cache."""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Any

from lerobot.configs.train import TrainPipelineConfig

from strobe.core.errors import UserError
from strobe.core.measure.memory import available_bytes
from strobe.core.measure.sampling import FEWEST_PAIRS, SamplingBudget, collect
from strobe.core.studies.shared.progress import Reporter
from strobe.dataloader.process import LoaderError, LoaderProcess
from strobe.dataloader.results import DatasetFacts, LoaderSettings, StepNeed
from strobe.lerobot.datasets.finder import stopping
from strobe.lerobot.policies.dataset_frames import locate_dataset

BUDGET = SamplingBudget(seconds=20.0, fewest=FEWEST_PAIRS, min_iterations=5, precision=0.03)


def training_device(config: TrainPipelineConfig) -> str:
    """The device that the training would run on."""
    return str(config.trainable_config.device or "cpu")


class StepNeeds:
    """Measures the step at any batch size, on one copy of the policy, which the first call builds."""

    def __init__(self, config: TrainPipelineConfig, live: Reporter) -> None:
        self.notes: list[str] = []
        self._config, self._live = config, live
        self._subject: Any = None

    def __call__(self, batch_size: int) -> StepNeed:
        """The step with a batch of ``batch_size``: preprocessing, forward, backward, clipping, optimizer.

        Raises:
            UserError: the policy cannot be built for this dataset, or does not fit into memory.
        """
        if self._subject is None:
            self._subject = self._build_step()
        self._live.stage(f"the training step with {batch_size} samples")
        call = self._subject.call("training step", batch_size)
        count = 0

        def time_one_call() -> float:
            nonlocal count
            began = time.perf_counter()
            call(count)
            count += 1
            return 1000 * (time.perf_counter() - began)

        samples = collect({"step": time_one_call}, BUDGET, self._live.progress).samples["step"]
        rate = 1000 * batch_size / samples.summary.median
        return StepNeed(batch_size=batch_size, samples_per_s=rate, source="measured", step_ms=samples)

    def _build_step(self) -> object:
        from strobe.lerobot.policies import inputs, lerobot_policies
        from strobe.lerobot.policies.policy_subject import PolicySubject

        policy = copy.deepcopy(self._config.policy)
        if policy is None:
            raise UserError("a reward model's step is not measured here: give its rate with --needed=RATE or max")
        self._live.stage(f"building {policy.type}")
        fed = inputs.from_dataset(policy, self._config.dataset.root, self._config.dataset.repo_id)
        loaded = lerobot_policies.load(policy, fed, rename=self._config.rename_map or None)
        self.notes += loaded.notes
        if self._config.peft is not None:
            self.notes.append("the step was measured without PEFT: all weights were trained")
        if training_device(self._config) == "cpu":
            self.notes.append(
                "on the CPU the step and the workers share the cores, so together they are slower than either alone"
            )
        subject = PolicySubject(loaded, fed)
        training = subject.training
        training.deterministic = self._config.cudnn_deterministic
        training.benchmark = not training.deterministic
        settings = subject.traits("training step", 1).policy
        self.notes += [settings.settings] if settings is not None and settings.settings else []
        if (cast := subject.training.dtype) is not None:
            name = str(cast).removeprefix("torch.")
            self.notes.append(f"the step was measured under autocast to {name}, as lerobot-train runs it")
        return subject


CACHED_SHARE = 0.5  # share of free memory up to which a dataset is expected to stay in the page cache


def read_dataset_facts(config: TrainPipelineConfig, settings: LoaderSettings) -> tuple[DatasetFacts, Path]:
    """Facts of the dataset, and its folder; one sample of it is decoded. Raises UserError."""
    try:
        with LoaderProcess(config, settings.model_copy(update={"num_workers": 0})) as process:
            facts = process.facts()
    except LoaderError as error:
        raise UserError(explain_unreadable_dataset(config, str(error))) from None
    root = Path(facts.pop("root"))
    return DatasetFacts(name=config.dataset.repo_id, **facts), root


def explain_unreadable_dataset(config: TrainPipelineConfig, otherwise: str) -> str:
    """Return in a line what is wrong with the dataset, after loading failed; ``otherwise`` where that is not found."""
    given = config.dataset
    root = locate_dataset(given.root, given.repo_id)
    return stopping(root, given.repo_id, given.episodes, tolerance_s=config.tolerance_s) or otherwise


def fill_page_cache(root: Path) -> str | None:
    """Read every file below ``root``, so that it is cached, as from the second epoch on.

    Returns a note where the dataset is too large for that, in which case nothing is read.
    """
    files = [path for path in root.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    if size > CACHED_SHARE * available_bytes():
        return (
            f"the dataset's {size / 2**30:.1f} GiB do not fit into memory together with the training: reading from "
            "storage is part of the measurement"
        )
    for path in files:
        with path.open("rb") as file:
            while file.read(2**24):
                pass
    return None
