"""Would another encoding of the dataset load faster? The same episodes, encoded by LeRobot, read by one loader."""

from __future__ import annotations

import copy
import dataclasses
import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs.train import TrainPipelineConfig

from strobe.core.errors import UserError
from strobe.core.studies.shared.progress import Reporter
from strobe.dataloader import throughput
from strobe.dataloader.preparation import explain_unreadable_dataset
from strobe.dataloader.process import LoaderError, LoaderProcess
from strobe.dataloader.results import Encoding, LoaderSettings, Rate
from strobe.lerobot.quiet import muted_stderr, quiet
from strobe.lerobot.refusals import first_line

TURNS = 2  # samplings of each encoding, in turn with the others


@dataclass(frozen=True)
class ImageFormat:
    """A way to keep images: a codec with its distance between key frames, or single images; ``scale`` of each side."""

    codec: str | None
    key_frames: int | None = 2
    scale: float = 1.0

    @property
    def name(self) -> str:
        """The format as the rows name it."""
        name = "single images (PNG)" if self.codec is None else f"{self.codec}, key frame every {self.key_frames}"
        return name if self.scale == 1 else f"{name}, {'half' if self.scale == 0.5 else self.scale} size"


# LeRobot's own default first; a longer distance between key frames makes files smaller and random access slower.
FORMATS = (
    ImageFormat("libsvtav1"),
    ImageFormat("libsvtav1", key_frames=20),
    ImageFormat("h264"),
    ImageFormat("hevc"),
    ImageFormat("h264", key_frames=20),
    ImageFormat("h264", scale=0.5),
    ImageFormat(None),
)


@dataclass
class _Episodes:
    """Decoded frames of the sample: for each episode its frames, as `LeRobotDataset.add_frame` takes them."""

    features: dict[str, Any]
    fps: int
    cameras: list[str]
    frames: list[list[dict[str, Any]]]

    @property
    def count(self) -> int:
        return sum(map(len, self.frames))


def encodings(
    config: TrainPipelineConfig, chosen: LoaderSettings, episodes: int, seconds: float, live: Reporter
) -> Iterator[Encoding]:
    """A row for every encoding that this machine's LeRobot can write, with the original dataset first.

    The sample is the first ``episodes``; what is written for it is removed, whatever happens.

    Args:
        seconds: for which each encoding is loaded, in all.

    Raises:
        UserError: the sample cannot be decoded.
    """
    live.stage("decoding the sample of episodes")
    sample = _decode(config, episodes)
    with tempfile.TemporaryDirectory(prefix="strobe-encodings-") as folder:
        rows: dict[str, Encoding] = {}
        roots: dict[str, Path | None] = {"baseline": None}
        rows["baseline"] = Encoding(name="baseline", status="not run", bytes_per_hour=_own_size(config))
        for image_format in FORMATS:
            live.stage(f"encoding: {image_format.name}")
            rows[image_format.name], root = _write_encoding(sample, image_format, Path(folder))
            if root is not None:
                roots[image_format.name] = root
        for _ in range(TURNS):
            for name, root in roots.items():
                if rows[name].status != "failed":
                    live.stage(f"loading: {name}")
                    _sample(rows[name], _reading(config, root, episodes), chosen, seconds / TURNS)
        yield from rows.values()


def _sample(row: Encoding, config: TrainPipelineConfig, chosen: LoaderSettings, seconds: float) -> None:
    try:
        with LoaderProcess(config, chosen) as process:
            process.start()
            seen: Rate = throughput.block_rate(*process.sample(seconds))
    except LoaderError as error:
        row.status, row.reason = "failed", str(error)
        return
    same = row.rate is None or row.rate.block_samples == seen.block_samples
    row.rate, row.status = throughput.merge_rates(row.rate if same else None, seen), "done"


def _reading(config: TrainPipelineConfig, root: Path | None, episodes: int) -> TrainPipelineConfig:
    changed = dataclasses.replace(config.dataset, eval_split=0.0)
    if root is None:
        first = config.dataset.episodes or list(range(episodes))
        changed = dataclasses.replace(changed, episodes=first[:episodes])
    else:
        changed = dataclasses.replace(
            changed, root=str(root), repo_id=f"local/{root.name}", episodes=None, revision=None
        )
    of_sample = copy.copy(config)
    of_sample.dataset = changed
    return of_sample


def _decode(config: TrainPipelineConfig, episodes: int) -> _Episodes:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot.utils.constants import DEFAULT_FEATURES

    chosen = (config.dataset.episodes or list(range(episodes)))[:episodes]
    try:
        with quiet():
            dataset: Any = LeRobotDataset(
                config.dataset.repo_id,
                root=config.dataset.root,
                episodes=chosen,
                video_backend=config.dataset.video_backend,
                return_uint8=True,
            )
            cameras = [key for key in dataset.meta.camera_keys if key not in dataset.meta.depth_keys]
            features = {key: dict(value) for key, value in dataset.features.items() if key not in DEFAULT_FEATURES}
            copied = {
                key for key, value in features.items() if value["dtype"] in ("video", "image", "float32", "int64")
            }
            features = {
                key: value for key, value in features.items() if key in copied and key not in dataset.meta.depth_keys
            }
            frames: dict[int, list[dict[str, Any]]] = {}
            for index in range(len(dataset)):
                item = dataset[index]
                frame = {key: _stored_array(item[key], key in cameras, features[key]["shape"]) for key in features}
                frames.setdefault(int(item["episode_index"]), []).append(frame | {"task": item["task"]})
    except Exception as error:
        reason = explain_unreadable_dataset(config, f"the sample of episodes cannot be decoded: {first_line(error)}")
        raise UserError(reason) from error
    return _Episodes(features, int(dataset.meta.fps), cameras, list(frames.values()))


def _stored_array(value: torch.Tensor, camera: bool, shape: Any) -> np.ndarray:
    if not camera:
        return value.reshape(tuple(shape)).numpy()
    pixels = value if value.dtype == torch.uint8 else (value * 255).round().to(torch.uint8)
    return pixels.permute(1, 2, 0).contiguous().numpy()


def _write_encoding(sample: _Episodes, image_format: ImageFormat, folder: Path) -> tuple[Encoding, Path | None]:
    from lerobot.configs.video import RGBEncoderConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    row = Encoding(name=image_format.name, status="not run")
    root = folder / f"encoding{abs(hash(image_format))}"
    codec, scale = image_format.codec, image_format.scale
    features = {key: dict(value) for key, value in sample.features.items()}
    for key in sample.cameras:
        height, width, channels = features[key]["shape"]
        size = (_even(height * scale), _even(width * scale), channels) if scale != 1 else (height, width, channels)
        features[key] = {
            "dtype": "image" if codec is None else "video",
            "shape": size,
            "names": ["height", "width", "channels"],
        }
    began = time.perf_counter()
    try:
        with quiet(), muted_stderr():
            encoder = (
                RGBEncoderConfig(vcodec=image_format.codec, g=image_format.key_frames)
                if image_format.codec is not None
                else None
            )
            dataset: Any = LeRobotDataset.create(
                f"local/{root.name}", sample.fps, features, root=root, use_videos=codec is not None, rgb_encoder=encoder
            )
            for episode in sample.frames:
                for frame in episode:
                    dataset.add_frame(
                        {
                            k: _scale_image(v, features[k]["shape"]) if k in sample.cameras else v
                            for k, v in frame.items()
                        }
                    )
                dataset.save_episode(parallel_encoding=False)
            dataset.finalize()
            row.encode_s = time.perf_counter() - began
            row.psnr_db = _psnr(sample, root)
    except Exception as error:  # an encoder that is not in this build, a codec that refuses the size
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        row.status, row.reason = "failed", reason[:300]
        shutil.rmtree(root, ignore_errors=True)
        return row, None
    row.bytes_per_hour = _bytes(root) * sample.fps * 3600 / sample.count
    return row, root


def _even(side: float) -> int:
    return max(2, 2 * round(side / 2))  # video's colours come in pairs of pixels


def _scale_image(image: np.ndarray, shape: Any) -> np.ndarray:
    if image.shape[:2] == tuple(shape[:2]):
        return image
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    small = torch.nn.functional.interpolate(pixels, size=tuple(shape[:2]), mode="area")
    return small[0].round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()


def _psnr(sample: _Episodes, root: Path) -> float | None:
    """Peak signal to noise over all pixels, in dB; a smaller image is enlarged first. None for equal images."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset: Any = LeRobotDataset(f"local/{root.name}", root=root, return_uint8=True, video_backend="pyav")
    squared, pixels, index = 0.0, 0, 0
    for episode in sample.frames:
        for frame in episode:
            item = dataset[index]
            index += 1
            for key in sample.cameras:
                was = torch.from_numpy(frame[key]).permute(2, 0, 1).float()
                now = item[key].float() * (1 if item[key].dtype == torch.uint8 else 255)
                if now.shape != was.shape:
                    now = torch.nn.functional.interpolate(now[None], size=was.shape[-2:], mode="bilinear")[0]
                squared += float(((was - now) ** 2).sum())
                pixels += was.numel()
    mean = squared / max(1, pixels)
    return None if mean < 1e-3 else 10 * math.log10(255**2 / mean)


def _own_size(config: TrainPipelineConfig) -> float | None:
    from lerobot.datasets.dataset_metadata import LeRobotDatasetMetadata

    with quiet():
        meta = LeRobotDatasetMetadata(config.dataset.repo_id, root=config.dataset.root)
    return _bytes(Path(meta.root)) * meta.fps * 3600 / max(1, meta.total_frames)


def _bytes(root: Path) -> int:
    folders = [root / name for name in ("data", "videos")]
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
