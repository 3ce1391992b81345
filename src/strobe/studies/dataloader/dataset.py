"""The dataset before a search: its facts, and its files in the page cache."""

from __future__ import annotations

from pathlib import Path

from lerobot.configs.train import TrainPipelineConfig

from strobe.datasets.finder import checked, stopping
from strobe.errors import UserError
from strobe.measure.memory import available_bytes
from strobe.policies.dataset_frames import locate_dataset
from strobe.results.dataloader import DatasetFacts, LoaderSettings
from strobe.studies.dataloader.process import LoaderError, LoaderProcess

CACHED_SHARE = 0.5  # of free memory, up to which a dataset is taken to stay in the page cache


def facts_of(config: TrainPipelineConfig, settings: LoaderSettings) -> tuple[DatasetFacts, Path]:
    """Facts of the dataset, and its folder; one sample of it is decoded. Raises UserError."""
    try:
        with LoaderProcess(config, settings.model_copy(update={"num_workers": 0})) as process:
            facts = process.facts()
    except LoaderError as error:
        raise UserError(why_not_read(config, str(error))) from None
    root = Path(facts.pop("root"))
    return DatasetFacts(name=config.dataset.repo_id, **facts), root


def faults_of(config: TrainPipelineConfig, root: Path) -> list[str]:
    """Return the faults of the dataset at ``root``, as notes.

    Raises:
        UserError: frames of it cannot be read. A loader that fails for that says nothing about its settings.
    """
    return checked(root, config.dataset.repo_id, config.dataset.episodes, tolerance_s=config.tolerance_s)


def why_not_read(config: TrainPipelineConfig, otherwise: str) -> str:
    """Return in a line what is wrong with the dataset, after loading failed; ``otherwise`` where that is not found."""
    given = config.dataset
    root = locate_dataset(given.root, given.repo_id)
    return stopping(root, given.repo_id, given.episodes, tolerance_s=config.tolerance_s) or otherwise


def fill_page_cache(root: Path) -> str | None:
    """Read every file below ``root``, so that it is cached, as it is from the second epoch on.

    Returns a note where the dataset is too large for that, in which case nothing is read.
    """
    files = [path for path in root.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    if size > CACHED_SHARE * available_bytes():
        return (
            f"the dataset's {size / 2**30:.1f} GiB do not fit into memory beside the training: reading from storage "
            "is part of what was measured"
        )
    for path in files:
        with path.open("rb") as file:
            while file.read(2**24):
                pass
    return None
