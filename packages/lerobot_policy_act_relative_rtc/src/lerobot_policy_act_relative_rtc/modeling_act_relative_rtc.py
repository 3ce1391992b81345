"""The policy that LeRobot sees: absolute states and actions outside, relative and normalised ones inside."""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import Any

import torch
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.utils.constants import ACTION, OBS_ENV_STATE, OBS_STATE
from torch import Tensor
from torch.nn.functional import pad

from . import statistics
from .configuration_act_relative_rtc import ACTRelativeRTCConfig
from .history import StateHistory
from .network import ACTRelativeRTC, Observation

logger = logging.getLogger(__name__)

_STATISTICS = ("action_mean", "action_std", "delta_mean", "delta_std")


class ACTRelativeRTCPolicy(PreTrainedPolicy):
    """ACT on relative actions, with training-time real-time chunking.

    The three are of Zhao et al. 2023 (ACT), Chi et al. 2024 (UMI) and Black et al. 2025. The chunking is trained over
    one random delay per sample, or over all delays at once (the idea of VLASH).

    A chunk's actions are relative to the state at its start, where the state has the dimension, and the proprioceptive
    input is how far the state moved in the last ``obs_state_delta_frames`` ticks. Both are normalised with statistics
    that are computed from the dataset when a new policy is built, and saved with the weights. Nothing relative ever
    leaves the policy, so a prefix is given in absolute actions, whatever state it was planned from.
    """

    config_class = ACTRelativeRTCConfig  # pyright: ignore[reportAssignmentType]
    name = "act_relative_rtc"  # pyright: ignore[reportAssignmentType]

    action_mean: Tensor
    action_std: Tensor
    delta_mean: Tensor
    delta_std: Tensor

    def __init__(
        self,
        config: ACTRelativeRTCConfig,
        dataset_stats: dict[str, dict[str, Any]] | None = None,
        dataset_meta: Any = None,
        **_: Any,
    ) -> None:
        """Build with random weights.

        The statistics come from the parquet files of ``dataset_meta``; without it from ``dataset_stats``, as bounds
        (see `statistics.bounds`); without either they are missing until a checkpoint is loaded.
        """
        super().__init__(config)
        config.validate_features()
        assert config.robot_state_feature is not None
        assert config.action_feature is not None
        self.config: ACTRelativeRTCConfig = config
        self.model = ACTRelativeRTC(config)
        for name in _STATISTICS:
            feature = config.action_feature if name.startswith("action") else config.robot_state_feature
            # Infinite for missing: what is computed with it by mistake is not finite either.
            self.register_buffer(name, torch.full((feature.shape[0],), torch.inf))
        self._have_statistics = False
        found = None if config.pretrained_path else _statistics(config, dataset_stats, dataset_meta)
        if found is not None:
            for name in _STATISTICS:
                getattr(self, name).copy_(torch.from_numpy(getattr(found, name)))
        self._history = StateHistory(config.obs_state_delta_frames)
        self._told = False
        self.reset()

    def reset(self) -> None:
        """Forget the episode: queued actions, past states and the previous chunk."""
        # ACT's name for it, by which a control loop sees whether the next tick calls the model.
        self._action_queue: deque[Tensor] = deque()
        self._previous: Tensor | None = None
        self._history.clear()

    def get_optim_params(self) -> list[dict[str, Any]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the parameter groups; the backbone has a learning rate of its own."""
        named = [(name, parameter) for name, parameter in self.named_parameters() if parameter.requires_grad]
        backbone = [parameter for name, parameter in named if name.startswith("model.backbone.")]
        rest = [parameter for name, parameter in named if not name.startswith("model.backbone.")]
        return [{"params": rest}, {"params": backbone, "lr": self.config.optimizer_lr_backbone}]

    def supports_rtc(self) -> bool:
        """Whether the policy can run in LeRobot's RTC engine; LeRobot's rollout asks before it starts it."""
        return self.config.use_rtc

    def init_rtc_processor(self) -> None:
        """Do nothing: LeRobot calls this where RTC is switched on, and here the prefix is an input of the network."""

    # Training

    def forward(self, batch: dict[str, Any], delays: Tensor | None = None) -> tuple[Tensor, dict[str, float]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the loss of a batch of absolute values, and its terms by name.

        A sample's loss at delay d is the sum of |error| over its valid actions from position d on, divided by
        ``(chunk_size - d) * action_dim``; the loss is the mean over samples and delays, plus in training the latent's
        divergence as in ACT, once. The denominator does not depend on padding, so a random delay per sample
        (``sampled``) estimates the mean over all delays without bias.

        Args:
            batch: ``observation.state`` (B, 2, state_dim) with the earlier one first, or (B, state_dim), which is taken
                as a state at rest; images; ``action`` (B, ≥ chunk_size, action_dim); ``action_is_pad``.
            delays: the delays to compute, (B, N), instead of those that ``delay_training`` says.
        """
        config = self.config
        state, before = _last(batch[OBS_STATE], 2), _first(batch[OBS_STATE])
        absolute = batch[ACTION][:, : config.chunk_size]
        if absolute.shape[1] < config.chunk_size:
            raise ValueError(f"the batch has {absolute.shape[1]} actions per sample, fewer than {config.chunk_size=}")
        padding = batch.get(f"{ACTION}_is_pad")
        valid = torch.ones_like(absolute[..., 0], dtype=torch.bool)
        if padding is not None:
            valid = ~padding[:, : config.chunk_size].bool()
        target = self._relative(absolute, state)
        if delays is None:
            delays = self._delays(len(state), state.device)
        predicted, latent = self.model(
            self._observation(batch, state - before),
            target[:, : config.rtc_max_delay] if config.use_rtc else None,
            delays,
            expand=config.delay_training == "expanded",
            target=target if self.training else None,
            valid=valid,
        )
        steps = torch.arange(config.chunk_size, device=delays.device)
        counted = valid[:, None] & (steps >= delays[..., None])
        errors = ((predicted - target[:, None]).abs().sum(-1) * counted).sum(-1)
        reconstruction = (errors / ((config.chunk_size - delays) * target.shape[-1])).mean()
        parts = {"l1_loss": reconstruction.item()}
        if latent is None:
            return reconstruction, parts
        divergence = latent.divergence()
        return reconstruction + config.kl_weight * divergence, {**parts, "kld_loss": divergence.item()}

    def _delays(self, batch: int, device: torch.device) -> Tensor:
        """Delays that a training step computes for each sample, (B, N)."""
        config = self.config
        if not config.use_rtc:
            return torch.zeros(batch, 1, dtype=torch.long, device=device)
        if config.delay_training == "sampled":
            return torch.randint(config.rtc_max_delay + 1, (batch, 1), device=device)
        return torch.arange(config.rtc_max_delay + 1, device=device).expand(batch, -1)

    # Inference

    @torch.no_grad()
    def predict_action_chunk(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        batch: dict[str, Any],
        delay: int = 0,
        action_prefix: Tensor | None = None,
        *,
        inference_delay: int | None = None,
        prev_chunk_left_over: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        """The chunk (B, chunk_size, action_dim) from now on, in absolute actions.

        Args:
            batch: an observation; if its state has a time axis, the state's change is last minus first, else it comes
                from the states of earlier calls.
            delay: how many actions will be executed before this chunk is ready.
            action_prefix: those actions and possibly more, (B, ≥ delay, action_dim), absolute. The chunk begins with
                the first ``delay`` of them, exactly.
            inference_delay, prev_chunk_left_over: the same in the form that LeRobot's rollout passes. The latter is
                (T, action_dim) or (B, T, action_dim), filled up with zeros, and None before the first chunk. The
                rollout guesses the delay, and an error would stop the robot in mid-motion: so a delay over
                ``rtc_max_delay``, or over the actions left, is shortened to fit, and a warning says so once.

        Raises ValueError, in one line, for a delay or prefix that cannot be, and for missing statistics.
        """
        self.eval()
        config = self.config
        state = _last(batch[OBS_STATE], 2)
        if inference_delay is not None or prev_chunk_left_over is not None:
            delay, action_prefix = self._from_rollout(inference_delay or 0, prev_chunk_left_over, len(state))
        self._check_prefix(delay, action_prefix, len(state))
        change = self._change(batch, state, self._ticks_since(action_prefix))
        chunk = self._chunk(batch, state, change, delay, action_prefix)
        self._previous = chunk if config.use_rtc else None
        return chunk

    @torch.no_grad()
    def select_action(self, batch: dict[str, Any], **_: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The next action (B, action_dim), of a new chunk every ``n_action_steps`` ticks.

        A policy that was trained with ``use_rtc`` makes a chunk of delay 0: no action is executed while it computes.
        """
        self.eval()
        state = _last(batch[OBS_STATE], 2)
        # Recorded every tick, also while actions are queued, because the history counts ticks.
        change = self._change(batch, state, 1)
        if not self._action_queue:
            chunk = self._chunk(batch, state, change, 0, None)
            self._action_queue.extend(chunk[:, : self.config.n_action_steps].unbind(1))
        return self._action_queue.popleft()

    def _chunk(
        self, batch: dict[str, Any], state: Tensor, change: Tensor, delay: int, action_prefix: Tensor | None
    ) -> Tensor:
        config = self.config
        prefix = None
        if config.use_rtc:
            given = state.new_zeros(len(state), 0, len(self.action_mean)) if action_prefix is None else action_prefix
            given = given[:, :delay].to(state)
            # The network puts its padding embedding in the place of the rows that fill it up.
            prefix = pad(self._relative(given, state), (0, 0, 0, config.rtc_max_delay - delay))
        delays = torch.full((len(state), 1), delay, device=state.device)
        chunk, _ = self.model(self._observation(batch, change), prefix, delays)
        absolute = chunk[:, 0] * self.action_std + self.action_mean + self._origin(state)
        if action_prefix is None or not delay:
            return absolute
        return torch.cat([action_prefix[:, :delay].to(absolute), absolute[:, delay:]], dim=1)

    def _check_prefix(self, delay: int, prefix: Tensor | None, batch: int) -> None:
        most = self.config.rtc_max_delay if self.config.use_rtc else 0
        if not 0 <= delay <= most:
            why = f"rtc_max_delay={most}" if self.config.use_rtc else "use_rtc=false"
            raise ValueError(f"delay must be 0 to {most} ({why}), got {delay}")
        size = len(self.action_mean)
        if prefix is None and delay:
            raise ValueError(
                f"delay={delay} needs an action_prefix of shape ({batch}, at least {delay}, {size}), got none"
            )
        if prefix is None:
            return
        if prefix.dim() != 3 or prefix.shape[0] != batch or prefix.shape[1] < delay or prefix.shape[2] != size:
            wanted = f"({batch}, at least {delay}, {size})"
            raise ValueError(f"action_prefix must be of shape {wanted} for delay={delay}, got {tuple(prefix.shape)}")

    def _from_rollout(self, delay: int, left_over: Tensor | None, batch: int) -> tuple[int, Tensor | None]:
        """Turn what LeRobot's RTC engine passes into a delay and a prefix that this policy takes."""
        if left_over is None:
            return 0, None
        prefix = left_over if left_over.dim() == 3 else left_over.expand(batch, *left_over.shape)
        # The engine fills a short left-over up with rows of zeros, which as absolute actions would be a command.
        real = prefix.ne(0).any(-1).any(0).nonzero()
        prefix = prefix[:, : int(real[-1]) + 1 if len(real) else 0]
        most = min(self.config.rtc_max_delay, prefix.shape[1])
        if delay > most and not self._told:
            self._told = True
            logger.warning(
                "act_relative_rtc: an inference delay of %d ticks, but only %d actions can be given as a prefix "
                "(rtc_max_delay=%d, %d left over); expect a jump there",
                delay, most, self.config.rtc_max_delay, prefix.shape[1],
            )  # fmt: skip
        return min(delay, most), prefix

    def _ticks_since(self, prefix: Tensor | None) -> int:
        """Ticks since the previous chunk's observation, which is where in that chunk ``prefix`` begins.

        A policy is not given this number, and LeRobot's RTC engine calls it only every few ticks. So ``prefix`` is
        looked up in the previous chunk. An empty one means that the chunk was used up: then it is the chunk's length.
        It is 1 where the prefix is not found.
        """
        previous = self._previous
        if prefix is None or previous is None or prefix.shape[0] != len(previous):
            return 1
        if not prefix.shape[1]:
            return previous.shape[1]
        same = (previous == prefix[:, :1].to(previous)).all(-1).all(0).nonzero()
        return max(int(same[0]), 1) if len(same) else 1

    def _change(self, batch: dict[str, Any], state: Tensor, ticks: int) -> Tensor:
        if batch[OBS_STATE].dim() > 2:
            return state - _first(batch[OBS_STATE])
        return self._history.change(state, ticks)

    # Absolute outside, relative inside

    def _observation(self, batch: dict[str, Any], change: Tensor) -> Observation:
        self._require_statistics()
        config = self.config
        return Observation(
            images=[_last(batch[key], 4) for key in config.image_features],
            state_delta=(change - self.delta_mean) / self.delta_std,
            environment=_last(batch[OBS_ENV_STATE], 2) if config.env_state_feature is not None else None,
        )

    def _relative(self, actions: Tensor, state: Tensor) -> Tensor:
        return (actions - self._origin(state) - self.action_mean) / self.action_std

    def _origin(self, state: Tensor) -> Tensor:
        """Return the origin of relative actions, (B, 1, action_dim): the state in the dimensions it has, else zero."""
        size = len(self.action_mean)
        kept = state[:, :size]
        return pad(kept, (0, size - kept.shape[1]))[:, None]

    def _require_statistics(self) -> None:
        if self._have_statistics:  # checked once: on a GPU every check waits for the device
            return
        if not all(getattr(self, name).isfinite().all() for name in _STATISTICS):
            raise ValueError(
                "act_relative_rtc has no statistics of the relative actions: build the policy with the dataset's "
                "metadata (lerobot-train does) or load a checkpoint that has them"
            )
        self._have_statistics = True


def _statistics(
    config: ACTRelativeRTCConfig, stats: dict[str, dict[str, Any]] | None, meta: Any
) -> statistics.Statistics | None:
    root = getattr(meta, "root", None)
    if root is not None:
        return statistics.compute_statistics(Path(root), config.chunk_size, config.obs_state_delta_frames)
    if stats is None or not {ACTION, OBS_STATE} <= stats.keys():
        return None
    logger.warning("act_relative_rtc: no dataset to compute statistics from, taking bounds from the absolute values'")
    return statistics.bounds(stats)


def _last(values: Tensor, dims: int) -> Tensor:
    """Return the last entry of the time axis, if there is one: values without it have ``dims`` dimensions."""
    return values[:, -1] if values.dim() > dims else values


def _first(state: Tensor) -> Tensor:
    return state[:, 0] if state.dim() > 2 else state
