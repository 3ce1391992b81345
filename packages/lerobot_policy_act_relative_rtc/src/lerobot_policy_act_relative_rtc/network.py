"""The network: ACT (Zhao et al. 2023) with the next actions as a prefix among the encoder's tokens.

Training on true prefixes of random length is training-time real-time chunking (Black et al. 2025); computing all
lengths together around one observation is VLASH's idea. Everything here is in normalised, relative values.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
import torchvision
from lerobot.policies.act.modeling_act import ACTSinusoidalPositionEmbedding2d, create_sinusoidal_pos_embedding
from torch import Tensor, nn
from torchvision.ops.misc import FrozenBatchNorm2d

from .attention import Blocks, Decoder, Encoder
from .configuration_act_relative_rtc import ACTRelativeRTCConfig


@dataclass(frozen=True)
class Observation:
    """images: (B, 3, H, W) of each camera; state_delta: (B, state_dim); environment: (B, env_dim) or None."""

    images: list[Tensor]
    state_delta: Tensor
    environment: Tensor | None


@dataclass(frozen=True)
class Latent:
    """The VAE's distribution over the latent, (B, latent_dim) each."""

    mean: Tensor
    log_variance: Tensor

    def sample(self) -> Tensor:
        return self.mean + (self.log_variance / 2).exp() * torch.randn_like(self.mean)

    def divergence(self) -> Tensor:
        """Return the divergence from the standard normal, mean over the batch (Kingma and Welling 2014, appendix B)."""
        terms = 1 + self.log_variance - self.mean.square() - self.log_variance.exp()
        return -0.5 * terms.sum(-1).mean()


class ACTRelativeRTC(nn.Module):
    """Chunks of normalised relative actions from observations and action prefixes."""

    def __init__(self, config: ACTRelativeRTCConfig) -> None:
        super().__init__()
        assert config.robot_state_feature is not None
        assert config.action_feature is not None
        self.config = config
        dim, state_dim, action_dim = (
            config.dim_model,
            config.robot_state_feature.shape[0],
            config.action_feature.shape[0],
        )
        shape = (dim, config.n_heads, config.dim_feedforward, config.dropout)

        if config.image_features:
            self.backbone, channels = _backbone(config)
            self.image_projection = nn.Conv2d(channels, dim, kernel_size=1)
            self.image_position = ACTSinusoidalPositionEmbedding2d(dim // 2)
        self.latent_projection = nn.Linear(config.latent_dim, dim)
        self.state_projection = nn.Linear(state_dim, dim)
        if config.env_state_feature is not None:
            self.environment_projection = nn.Linear(config.env_state_feature.shape[0], dim)
        self.token_position = nn.Embedding(2 + (config.env_state_feature is not None), dim)
        if config.use_rtc:
            self.prefix_projection = nn.Linear(action_dim, dim)
            self.prefix_padding = nn.Embedding(1, dim)
            self.prefix_position = nn.Embedding(config.rtc_max_delay, dim)
        self.encoder = Encoder(config.n_encoder_layers, *shape)
        self.decoder = Decoder(config.n_decoder_layers, *shape)
        self.query_position = nn.Embedding(config.chunk_size, dim)
        self.action_head = nn.Linear(dim, action_dim)
        for part in (self.encoder, self.decoder):
            for parameter in part.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)

        if config.use_vae:
            self.vae_encoder = Encoder(config.n_vae_encoder_layers, *shape)
            self.vae_token = nn.Embedding(1, dim)
            self.vae_state_projection = nn.Linear(state_dim, dim)
            self.vae_action_projection = nn.Linear(action_dim, dim)
            self.vae_latent_projection = nn.Linear(dim, 2 * config.latent_dim)
            position = create_sinusoidal_pos_embedding(2 + config.chunk_size, dim)[None]
            self.register_buffer("vae_position", position, persistent=False)

    def forward(
        self,
        observation: Observation,
        prefix: Tensor | None,
        delays: Tensor,
        *,
        expand: bool = False,
        target: Tensor | None = None,
        valid: Tensor | None = None,
    ) -> tuple[Tensor, Latent | None]:
        """Predict N chunks for each observation, one per delay: (B, N, chunk_size, action_dim).

        Args:
            observation: of B samples.
            prefix: the actions from now on, (B, rtc_max_delay, action_dim); None without RTC.
            delays: how many of them are known, (B, N). With ``use_rtc`` off only its shape counts.
            expand: compute the N delays as a batch of B·N after the backbone; else in one sequence, which for N > 1
                needs ``prefix_attention=one_way``.
            target: the actions (B, chunk_size, action_dim) to draw the latent from, as the VAE does in training; their
                distribution is the second thing returned. Without them the latent is zero.
            valid: which of the target's actions are real, (B, chunk_size).
        """
        batch, count = delays.shape
        latent = None
        if target is not None and valid is not None and self.config.use_vae:
            latent = self.encode_latent(observation.state_delta, target, valid)
        x, position = self.observe(observation, None if latent is None else latent.sample())
        if expand:
            x = x.repeat_interleave(count, 0)
            prefix = prefix if prefix is None else prefix.repeat_interleave(count, 0)
            delays = delays.reshape(-1, 1)
        blocks = None
        if prefix is not None:
            known = self.embed_prefix(prefix, delays)
            if self.config.prefix_attention == "one_way":
                blocks = Blocks(x.shape[1], known.shape[1], known.shape[2])
            elif known.shape[1] > 1:
                raise ValueError("several delays in one sequence need prefix_attention=one_way")
            x = torch.cat([x, known.flatten(1, 2)], dim=1)
            where = self.prefix_position.weight.repeat(known.shape[1], 1)[None]
            position = torch.cat([position, where], dim=1)
        x = self.encoder(x, position, blocks)
        x = self.decoder(self.query_position.weight, x, position, blocks)
        return self.action_head(x).view(batch, count, self.config.chunk_size, -1), latent

    def encode_latent(self, state_delta: Tensor, actions: Tensor, valid: Tensor) -> Latent:
        """Encode the actions to be learnt with the VAE's encoder: once per sample, whatever the delays."""
        token = self.vae_token.weight.expand(len(actions), 1, -1)
        state, steps = self.vae_state_projection(state_delta)[:, None], self.vae_action_projection(actions)
        visible = torch.cat([valid.new_ones(len(valid), 2), valid], dim=1)
        x = self.vae_encoder(torch.cat([token, state, steps], dim=1), self.vae_position, visible=visible)
        return Latent(*self.vae_latent_projection(x[:, 0]).chunk(2, dim=-1))

    def observe(self, observation: Observation, latent: Tensor | None) -> tuple[Tensor, Tensor]:
        """The observation's tokens (B, S, C), latent first, then state, environment, images; and their positions."""
        state = observation.state_delta
        if latent is None:
            latent = state.new_zeros(len(state), self.config.latent_dim)
        tokens = [self.latent_projection(latent), self.state_projection(state)]
        if observation.environment is not None:
            tokens.append(self.environment_projection(observation.environment))
        parts, positions = [torch.stack(tokens, dim=1)], [self.token_position.weight[None]]
        for image in observation.images:
            features = self.image_projection(self.backbone(image))
            parts.append(features.flatten(2).transpose(1, 2))
            positions.append(self.image_position(features).to(features.dtype).flatten(2).transpose(1, 2))
        return torch.cat(parts, dim=1), torch.cat(positions, dim=1)

    def embed_prefix(self, prefix: Tensor, delays: Tensor) -> Tensor:
        """The first ``delays`` (B, N) of the actions (B, P, A), the rest as padding: (B, N, P, C)."""
        known = torch.arange(prefix.shape[1], device=delays.device) < delays[..., None]
        return torch.where(known[..., None], self.prefix_projection(prefix)[:, None], self.prefix_padding.weight)


def _backbone(config: ACTRelativeRTCConfig) -> tuple[nn.Sequential, int]:
    """A ResNet up to its last feature map, and that map's channels."""
    # Weights that a checkpoint is about to overwrite need not be downloaded.
    weights = None if config.pretrained_path else config.pretrained_backbone_weights
    if weights is not None and not weights.lower().startswith(f"{config.vision_backbone}_"):
        raise ValueError(
            f"pretrained_backbone_weights={weights} are not for vision_backbone={config.vision_backbone}: "
            "name weights of that backbone, or null for none"
        )
    resnet = getattr(torchvision.models, config.vision_backbone)(weights=weights, norm_layer=FrozenBatchNorm2d)
    layers = OrderedDict((name, child) for name, child in resnet.named_children() if name not in ("avgpool", "fc"))
    return nn.Sequential(layers), resnet.fc.in_features
