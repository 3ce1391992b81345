"""The flags of `strobe compare`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from strobe.commands.variant_text import check_words
from strobe.core.cli.bounds import exclusive_minimum_bound
from strobe.core.devices.untried import KEY
from strobe.policy_cli.run_flags import RunConfig

if TYPE_CHECKING:
    from strobe.core.subjects.subject import Phase


@dataclass
class CompareConfig(RunConfig):
    """Flags of `strobe compare`."""

    # Adds a compiled copy of every variant (torch.compile).
    compile: bool = False
    # Mode of torch.compile: default, reduce-overhead or max-autotune.
    compile_mode: str = field(default="default", metadata={KEY: ("compile=reduce-overhead",)})
    # Adds RTC with its guidance in closed form: the same bits without autograd.
    closed_form: bool = False
    # Precisions to compare: fp32,tf32,bf16,fp16, or auto. The first one is the baseline.
    precision: str = field(default="", metadata={KEY: ("TF32",)})
    # Levers of a training step to compare with the baseline: auto, or a list such as amp,fused,accumulate=4. '+' joins
    # several levers in one variant.
    levers: str = field(default="", metadata={KEY: ("TF32",)})
    # Phase to compare: inference, training forward or training step (default: inference; training step with --levers).
    phase: str = ""
    # Margin of "as fast as": the whole interval lies within ± this share of the time.
    as_fast_within: float = field(default=0.02, metadata=exclusive_minimum_bound(0))
    # A variant to compare with the baseline: 'NAME: key=value, key=value'. May be repeated.
    variant: list[str] = field(default_factory=list)

    @property
    def compared_phase(self) -> Phase:
        """The phase that is compared."""
        return cast("Phase", self.phase)


def list_recipes(config: CompareConfig) -> list[Path]:
    """Return the files of recipes that the flags name, each once. Raises UserError for a variant that says nothing."""
    named = [config.recipe, *(check_words(text).recipe for text in config.variant)]
    return list(dict.fromkeys(path for path in named if path is not None))
