"""What does a training step over all delays cost, against one with a random delay per sample? And what does it buy?

The seed's model (2 cameras of 480×640, resnet18, width 256, 4 encoder layers, 1 decoder layer, chunk 50, 11 delays)
with random weights on random data. Full training steps (forward, backward, clipping, AdamW) of every way in interleaved
rounds; each way is compared with ``sampled`` of the same attention. Bars: packed ≤ 1.2, expanded ≤ 5.5.

Beside it the seed's own criterion, the backbone's share of the forward pass (≥ 70 %: expanding is viable, < 50 %: it
is not), and gradient noise. Noise is the expected squared distance of a step's gradient from its mean, over the mean's
own square, of the reconstruction alone and with dropout off: ``delay noise`` over draws of the delays for one batch
(0 where all delays are computed), ``data noise`` over batches. A step's noise falls with 1/n when n of them are
averaged, so noise × time of one step is what the same accuracy costs; it is shown over that of ``sampled``, and below 1
computing all delays pays. Both noises are those of random weights on random data: how much they are for a trained
policy on its own dataset, only training there can say.

On Linux it starts itself again with an allocator that keeps its memory, as a GPU's does: by default large tensors go
back to the kernel between operators, whose zeroing of fresh pages then is much of an expanded step
(--default_allocator).
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from common.shared import finish, keep_memory
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.utils.constants import ACTION, OBS_IMAGES, OBS_STATE
from lerobot_policy_act_relative_rtc import ACTRelativeRTCConfig, ACTRelativeRTCPolicy
from rich.console import Console
from rich.table import Table
from torch import Tensor

from strobe.core.measure.accounting import Accounting
from strobe.core.measure.sampling import SamplingBudget, collect
from strobe.core.measure.verdicts import paired_verdict

BARS = {"packed/one_way": 1.2, "expanded/one_way": 5.5, "expanded/two_way": 5.5}
DELAYS = 11


def baseline(way: str) -> str:
    """The way that ``way`` is compared with."""
    return f"sampled/{way.split('/')[1]}"


def build(way: str, image: tuple[int, int], device: str, **options: Any) -> ACTRelativeRTCPolicy:
    """The policy in training mode; the weights are the same for every way."""
    training, attention = way.split("/")
    config = ACTRelativeRTCConfig(
        chunk_size=50,
        rtc_max_delay=DELAYS - 1,
        dim_model=256,
        n_encoder_layers=4,
        n_decoder_layers=1,
        vision_backbone="resnet18",
        pretrained_backbone_weights=None,
        delay_training=training,
        prefix_attention=attention,
        device=device,
        input_features={
            f"{OBS_IMAGES}.top": PolicyFeature(FeatureType.VISUAL, (3, *image)),
            f"{OBS_IMAGES}.wrist": PolicyFeature(FeatureType.VISUAL, (3, *image)),
            OBS_STATE: PolicyFeature(FeatureType.STATE, (6,)),
        },
        output_features={ACTION: PolicyFeature(FeatureType.ACTION, (6,))},
        **options,
    )
    stats = {key: {"mean": torch.zeros(6), "std": torch.ones(6)} for key in (OBS_STATE, ACTION)}
    torch.manual_seed(0)
    return ACTRelativeRTCPolicy(config, dataset_stats=stats).to(device).train()


def make_batch(size: int, image: tuple[int, int], device: str, seed: int = 0) -> dict[str, Tensor]:
    """The seed's synthetic batch, with the earlier state that a LeRobotDataset gives."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {f"{OBS_IMAGES}.{name}": (3, *image) for name in ("top", "wrist")} | {OBS_STATE: (2, 6), ACTION: (60, 6)}
    drawn = {key: torch.randn(size, *shape, generator=generator).to(device) for key, shape in shapes.items()}
    return {**drawn, f"{ACTION}_is_pad": torch.zeros(size, 60, dtype=torch.bool, device=device)}


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def stepper(policy: ACTRelativeRTCPolicy, batch: dict[str, Tensor]) -> Callable[[], None]:
    """One full training step."""
    optimizer = torch.optim.AdamW(policy.get_optim_params(), lr=1e-5)

    def step() -> None:
        policy(batch)[0].backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def time_call(call: Callable[[], Any], device: str) -> float:
    """Milliseconds of one call."""
    wait(device)
    start = time.perf_counter()
    call()
    wait(device)
    return (time.perf_counter() - start) * 1e3


def peak_bytes(policy: ACTRelativeRTCPolicy, batch: dict[str, Tensor], device: str) -> int:
    """Highest tensor memory of forward and backward above weights and batch: activations and gradients."""

    def both() -> None:
        policy(batch)[0].backward()

    policy.zero_grad()
    counting = Accounting()
    if device == "cpu":
        counting.run(both)
        peak = counting.total.peak_bytes
    else:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        both()
        peak = torch.cuda.max_memory_allocated() - before
    policy.zero_grad()
    assert peak is not None
    return peak


def backbone_share(policy: ACTRelativeRTCPolicy, batch: dict[str, Tensor], device: str) -> float:
    """Of a forward pass in training mode, the median of three."""
    spent = [0.0]

    def clock(sign: int) -> Callable[..., None]:
        def tick(*_: Any) -> None:
            wait(device)
            spent[0] += sign * time.perf_counter() * 1e3

        return tick

    handles = [
        policy.model.backbone.register_forward_pre_hook(clock(-1)),
        policy.model.backbone.register_forward_hook(clock(1)),
    ]
    shares = []
    for _ in range(3):
        spent[0] = 0.0
        total = time_call(lambda: policy(batch), device)
        shares.append(spent[0] / total)
    for handle in handles:
        handle.remove()
    return median(shares)


def gradient(policy: ACTRelativeRTCPolicy, batch: dict[str, Tensor], delays: Tensor, seed: int) -> Tensor:
    torch.manual_seed(seed)  # of the latent's noise
    policy.zero_grad()
    policy(batch, delays)[0].backward()
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


def noises(attention: str, size: int, image: tuple[int, int], device: str, draws: int) -> tuple[float, float]:
    """(delay noise, data noise) of ``sampled`` at this batch size, from twice ``draws`` gradients."""
    # The divergence knows nothing of delays, and at random weights it would be most of the gradient.
    policy = build(f"sampled/{attention}", image, device, dropout=0.0, kl_weight=0.0)
    batch = make_batch(size, image, device)
    delays = torch.randint(DELAYS, (2 * draws, size, 1), generator=torch.Generator().manual_seed(1)).to(device)
    within = spread([gradient(policy, batch, delays[i], 0) for i in range(draws)])
    other = [gradient(policy, make_batch(size, image, device, i + 1), delays[draws + i], i) for i in range(draws)]
    total = spread(other)
    # The mean's own square is what is left of the mean gradient's after the part that its noise contributes.
    square = max(torch.stack(other).mean(0).square().sum().item() - total / draws, 1e-12)
    return within / square, max(total - within, 0.0) / square


def spread(gradients: list[Tensor]) -> float:
    """Unbiased estimate of the expected squared distance from the mean."""
    stacked = torch.stack(gradients)
    return (stacked - stacked.mean(0)).square().sum().item() / (len(stacked) - 1)


def rule(share: float) -> str:
    """The seed's verdict."""
    if share >= 0.7:
        return "expanding is viable"
    return "packing may be necessary" if share < 0.5 else "undecided"


def parse_flags() -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch_size", type=int, help="default: 2 on cpu, 32 on cuda")
    parser.add_argument("--ways", nargs="+", choices=BARS, default=list(BARS), help="to compare with sampled")
    parser.add_argument("--seconds", type=float, default=420.0, help="of sampling")
    parser.add_argument("--draws", type=int, default=5, help="gradients per noise; 0 to leave noise out")
    parser.add_argument("--default_allocator", action="store_true", help="of the C library, on Linux")
    parser.add_argument("--quick", action="store_true", help="images of 96×128, under a minute: no bar is judged")
    return parser.parse_args()


def main() -> None:
    arguments = parse_flags()
    logging.disable(logging.WARNING)  # statistics that are made up are known of here
    device, quick = arguments.device, arguments.quick
    if device == "cpu" and not arguments.default_allocator:
        keep_memory()
    size = arguments.batch_size or (2 if device == "cpu" else 32)
    image = (96, 128) if quick else (480, 640)
    names = list(dict.fromkeys(name for way in arguments.ways for name in (baseline(way), way)))
    batch = make_batch(size, image, device)
    policies = {name: build(name, image, device) for name in names}
    steps = {name: stepper(policy, batch) for name, policy in policies.items()}

    memory = {name: peak_bytes(policy, batch, device) for name, policy in policies.items()}
    budget = SamplingBudget(seconds=12 if quick else arguments.seconds, precision=0.005)
    collected = collect({name: (lambda step=step: time_call(step, device)) for name, step in steps.items()}, budget)
    times = {name: collected.samples[name].values for name in names}
    attentions = {name.split("/")[1]: name for name in names if name.startswith("sampled")}
    shares = {attention: backbone_share(policies[name], batch, device) for attention, name in attentions.items()}
    draws = min(arguments.draws, 2) if quick else arguments.draws
    found = {attention: noises(attention, size, image, device, draws) for attention in attentions} if draws > 1 else {}

    console = Console(width=120)
    title = f"batch {size}, 2 cameras of {image[0]}×{image[1]}, {device}, {torch.get_num_threads()} threads"
    columns = (
        "way",
        "ms per step",
        "over sampled",
        "interval",
        "ms per delay",
        "peak MiB",
        "delay noise",
        "data noise",
    )
    table = Table(*columns, "noise × time", title=title)
    figures: dict[str, Any] = {
        "device": device,
        "batch_size": size,
        "image": image,
        "backbone_share": shares,
        "judged": not quick,
    }
    holds = True
    for name in names:
        took, attention = median(times[name]), name.split("/")[1]
        delays = 1 if name.startswith("sampled") else DELAYS
        figure: dict[str, Any] = {"ms": took, "ms_per_delay": took / delays, "peak_bytes": memory[name]}
        ratio, shown = 1.0, ("1", "")
        if name in BARS:
            verdict = paired_verdict(
                times[baseline(name)], times[name], baseline_name=baseline(name), candidate_name=name
            )
            ratio, low, high = verdict.ratio, verdict.interval.low, verdict.interval.high
            shown = (f"{ratio:.3f}", f"{low:.2f}–{high:.2f}")
            figure |= {"ratio": ratio, "interval": [low, high], "pairs": verdict.pairs, "bar": BARS[name]}
            holds = holds and (quick or ratio <= BARS[name])
        noise = ("–", "–", "–")
        if attention in found:
            delay, data = found[attention]
            own = delay if delays == 1 else 0.0
            cost = ratio * (data + own) / (data + delay)
            figure |= {"delay_noise": own, "data_noise": data, "noise_time": cost}
            noise = (f"{own:.3g}", f"{data:.3g}", f"{cost:.3f}")
        figures[name] = figure
        table.add_row(name, f"{took:.0f}", *shown, f"{took / delays:.0f}", f"{memory[name] / 2**20:.0f}", *noise)
    console.print(table)
    for attention, share in shares.items():
        console.print(
            f"backbone, of the forward pass of sampled/{attention}: {share:.0%}; the seed's rule: {rule(share)}"
        )
    console.print(f"{collected.rounds} rounds, {collected.warmup_rounds} of them warm-up; {collected.stopped_because}")
    finish(figures, holds)


if __name__ == "__main__":
    main()
