"""Configuration of the policy, with ACT's names for the fields that ACT has too."""

from __future__ import annotations

from dataclasses import dataclass, field

from lerobot.configs import NormalizationMode, PreTrainedConfig
from lerobot.optim import AdamWConfig

DELAY_TRAINING = ("sampled", "expanded", "packed")
PREFIX_ATTENTION = ("two_way", "one_way")


@PreTrainedConfig.register_subclass("act_relative_rtc")
@dataclass
class ACTRelativeRTCConfig(PreTrainedConfig):
    """ACT with actions relative to the current state, and with training-time real-time chunking.

    The three are of Zhao et al. 2023 (ACT), Chi et al. 2024 (UMI) and Black et al. 2025. The chunking is trained over
    one delay per sample, or over all of them at once, as VLASH does.

    Fields not described here mean what they mean in LeRobot's ``ACTConfig``. All counts are in control ticks.

    Args:
        n_action_steps: actions that ``select_action`` executes of a chunk; None for the whole chunk.
        obs_state_delta_frames: the proprioceptive input is the state now minus the state this many ticks ago.
        use_rtc: condition a chunk on the actions that will be executed while it is computed.
        rtc_max_delay: the longest such prefix.
        delay_training: how a training step covers the delays 0 … ``rtc_max_delay``: one random delay per sample
            (``sampled``), the transformer's batch repeated over all of them (``expanded``), or all of them in one
            sequence that shares the observation's tokens (``packed``). The losses' expectation is the same.
        prefix_attention: whether the observation's tokens attend to the prefix (``two_way``) or only the prefix to
            them (``one_way``). They can be shared between delays only where they do not, so ``packed`` needs
            ``one_way``.

    Raises ValueError, in one line, for values that make no sense.
    """

    n_obs_steps: int = 1
    chunk_size: int = 100
    n_action_steps: int | None = None
    obs_state_delta_frames: int = 1

    use_rtc: bool = True
    rtc_max_delay: int = 10
    delay_training: str = "sampled"
    prefix_attention: str = "two_way"

    # States and actions are made relative, and then normalised, inside the policy.
    normalization_mapping: dict[str, NormalizationMode] = field(
        default_factory=lambda: {
            "VISUAL": NormalizationMode.MEAN_STD,
            "ENV": NormalizationMode.MEAN_STD,
            "STATE": NormalizationMode.IDENTITY,
            "ACTION": NormalizationMode.IDENTITY,
        }
    )

    vision_backbone: str = "resnet18"
    pretrained_backbone_weights: str | None = "ResNet18_Weights.IMAGENET1K_V1"
    dim_model: int = 512
    n_heads: int = 8
    dim_feedforward: int = 3200
    n_encoder_layers: int = 4
    n_decoder_layers: int = 1
    use_vae: bool = True
    latent_dim: int = 32
    n_vae_encoder_layers: int = 4
    dropout: float = 0.1
    kl_weight: float = 10.0

    optimizer_lr: float = 1e-5
    optimizer_weight_decay: float = 1e-4
    optimizer_lr_backbone: float = 1e-5

    # Neither annotated nor saved: `lerobot-rollout` puts its own RTC settings here, which this policy does not need.
    rtc_config = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_action_steps is None:
            self.n_action_steps = self.chunk_size
        self._check_sizes()
        self._check_training()
        self._check_delays()

    def _check_sizes(self) -> None:
        for name in (
            "chunk_size", "n_action_steps", "obs_state_delta_frames", "dim_model", "n_heads", "dim_feedforward",
            "n_encoder_layers", "n_decoder_layers", "latent_dim", "n_vae_encoder_layers",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.n_obs_steps != 1:
            raise ValueError(
                f"n_obs_steps must be 1, got {self.n_obs_steps}: the past enters only as the state's change"
            )
        if (self.n_action_steps or 0) > self.chunk_size:
            raise ValueError(f"n_action_steps={self.n_action_steps} is more than chunk_size={self.chunk_size}")
        if self.dim_model % 4 or self.dim_model % self.n_heads:
            raise ValueError(f"dim_model={self.dim_model} must be divisible by 4 and by n_heads={self.n_heads}")
        if not self.vision_backbone.startswith("resnet"):
            raise ValueError(f"vision_backbone must be one of torchvision's resnets, got '{self.vision_backbone}'")

    def _check_training(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")
        for name in ("kl_weight", "optimizer_lr", "optimizer_lr_backbone", "optimizer_weight_decay"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be 0 or above, got {getattr(self, name)}")
        for kind in ("STATE", "ACTION"):
            if self.normalization_mapping.get(kind, NormalizationMode.IDENTITY) is not NormalizationMode.IDENTITY:
                raise ValueError(
                    f"normalization_mapping[{kind}] must be IDENTITY: the policy normalises relative values"
                )

    def _check_delays(self) -> None:
        for name, allowed in (("delay_training", DELAY_TRAINING), ("prefix_attention", PREFIX_ATTENTION)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got '{getattr(self, name)}'")
        if self.use_rtc and not 1 <= self.rtc_max_delay < self.chunk_size:
            raise ValueError(
                f"rtc_max_delay must be 1 to chunk_size - 1 = {self.chunk_size - 1}, got {self.rtc_max_delay}"
            )
        if self.delay_training == "packed" and self.prefix_attention != "one_way":
            raise ValueError(
                "delay_training=packed shares the observation's tokens between delays, so they must not see a prefix: "
                "set prefix_attention=one_way"
            )

    def get_optimizer_preset(self) -> AdamWConfig:
        return AdamWConfig(lr=self.optimizer_lr, weight_decay=self.optimizer_weight_decay)

    def get_scheduler_preset(self) -> None:
        return None

    def validate_features(self) -> None:
        if self.robot_state_feature is None or self.action_feature is None:
            raise ValueError(
                "act_relative_rtc needs 'observation.state' and 'action': actions are relative to the state"
            )
        if not self.image_features and self.env_state_feature is None:
            raise ValueError("act_relative_rtc needs an image or the environment's state among its inputs")

    @property
    def observation_delta_indices(self) -> list[int]:
        """LeRobot applies these to every observation: two frames are decoded per camera, of which the last is used.

        A config can name one list for all observations only, so a plug-in cannot ask for the older state alone.
        """
        return [-self.obs_state_delta_frames, 0]

    @property
    def action_delta_indices(self) -> list[int]:
        return list(range(self.chunk_size))

    @property
    def reward_delta_indices(self) -> None:
        return None
