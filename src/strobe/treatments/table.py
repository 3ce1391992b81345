"""The words of Strobe's own treatments, in the order of help, and the file of each. Help and flags need no torch.

A treatment of another package is a line of its own in help: its entry is loaded, with what it imports.
"""

from __future__ import annotations

from dataclasses import dataclass

from strobe.core.devices.untried import Feature
from strobe.core.errors import UserError
from strobe.core.results.agreement import Effect
from strobe.core.treatments.words import GRAPHS, LIVE, MODES, Spec

# Ranks. What changes weights comes before what is built of them, then what is compiled or captured. The process comes
# last: copies of the weights are made before its heap keeps what it has, and what is built does not depend on it.
SETTING, DTYPE, QUANTISED, STRUCTURE, GUIDANCE, TRAINING, COMPILED, CAPTURED, PROCESS = range(0, 90, 10)


@dataclass(frozen=True)
class HelpWords:
    """The words of an entry, which `treatment.entry` completes.

    Args:
        key: stands before the ``=``. One that ends in a dot stands for all keys that begin with it.
        at: the file below `strobe.treatments` that the entry is in, as ``ENTRY`` where no name follows a colon.
        effect: the most it does to the actions.
        rank: treatments are put on in this order, whatever the order in which they are written.
        help: one line: what it does, which values it takes.
        only: the one value that it takes, True for a key without a value; None if it takes others.
        options: the keys that may follow, written ``key.option``.
        untried: what of it may not have run on the hardware that it is for; help says so where it has not.
    """

    key: str
    at: str
    effect: Effect
    rank: int
    help: str
    only: str | bool | None = None
    options: tuple[str, ...] = ()
    untried: tuple[Feature, ...] = ()


def require_only(words: HelpWords, spec: Spec) -> None:
    """Raise UserError where ``spec`` gives the key another value than the only one that it takes."""
    given = spec.get(words.key)
    if words.only is True and given is not True:
        raise UserError(f"{words.key}={given}: {words.key} takes no value")
    if isinstance(words.only, str) and given != words.only:
        raise UserError(f"{words.key}={given}: '{words.only}' is the only value")


# fmt: off
TABLE: tuple[HelpWords, ...] = (
    HelpWords("policy.", "settings", "lossy", SETTING,
        f"policy.FIELD=value, read on every call: the number of denoising steps (num_inference_steps, num_steps), "
        f"{', '.join(LIVE)}, and what the policy's family names"),
    HelpWords("frames", "inputs:FRAMES", "lossy", SETTING,
        "that many frames of a video backbone's clips, evenly spaced"),
    HelpWords("images", "inputs:IMAGES", "lossy", SETTING,
        "smaller images: 192 (the shorter side) or 192x256"),
    HelpWords("precision", "numbers.precision", "rounding", DTYPE,
        "fp32, tf32 (CUDA), bf16 or fp16; with precision.part=PATH for the module at PATH alone",
        options=("part",), untried=("TF32",)),
    HelpWords("tf32", "process_settings:TF32", "rounding", DTYPE,
        "products of float32 on CUDA's tensor cores",
        only=True, untried=("TF32",)),
    HelpWords("int8", "numbers.quantise:INT8", "lossy", QUANTISED,
        "linear layers in 8-bit integers: weights or dynamic (inputs too); with int8.part=PATH of a part",
        options=("part",), untried=("int8 on CUDA",)),
    HelpWords("fp8", "numbers.quantise:FP8", "lossy", QUANTISED,
        "linear layers in float8 (Hopper): weights, dynamic or static (calibrated); with fp8.part=PATH",
        options=("part",), untried=("fp8",)),
    HelpWords("channels_last", "numbers.channels_last", "rounding", STRUCTURE,
        "images and the weights of 2-D convolutions with the channels innermost",
        only=True),
    HelpWords("padding", "flow.padding", "exact", STRUCTURE,
        "trimmed: neither the prompt's padding nor cameras that are not there are computed",
        only="trimmed", options=("multiple",)),
    HelpWords("cameras", "flow.cameras:BATCHED", "exact", STRUCTURE,
        "batched: all cameras through the vision tower at once",
        only="batched"),
    HelpWords("views", "flow.cameras:PRESENT", "exact", STRUCTURE,
        "present: views without a camera go neither through the vision tower nor through the language model",
        only="present"),
    HelpWords("prefix_tail", "flow.unread:TAIL", "exact", STRUCTURE,
        "skipped: the prefix pass ends with its last layer's keys and values",
        only="skipped"),
    HelpWords("prefix_cache", "flow.prefix_cache", "exact", STRUCTURE,
        "static: the prefix's keys and values are laid down once a chunk, not copied in every denoising step",
        only="static"),
    HelpWords("prompt", "flow.prompt_once", "exact", STRUCTURE,
        "once: the prompt goes through the language model once a chunk, not in every denoising step",
        only="once"),
    HelpWords("timesteps", "flow.timesteps", "exact", STRUCTURE,
        "precomputed: what depends on the timestep alone, such as pi0.5's adaptive norms, once for all chunks",
        only="precomputed"),
    HelpWords("masks", "flow.masks", "exact", STRUCTURE,
        "once: attention masks and positions of the denoising steps are built once a chunk",
        only="once"),
    HelpWords("lm_head", "flow.unread:HEAD", "exact", STRUCTURE,
        "skipped: a language head whose words nobody reads does not run",
        only="skipped"),
    HelpWords("word_tables", "flow.text:TABLES", "exact", STRUCTURE,
        "apart: words are looked up in two tables, which are not joined to one for it",
        only="apart"),
    HelpWords("words", "flow.text:ONCE", "exact", STRUCTURE,
        "once: a text encoder reads a task's words once, not in every chunk",
        only="once"),
    HelpWords("context_keys", "flow.context:KEYS", "exact", STRUCTURE,
        "once: the context's keys and values are projected once a chunk, not in every denoising step",
        only="once"),
    HelpWords("unread_half", "flow.unread:HALF", "exact", STRUCTURE,
        "skipped: passes without guidance do not run the negative prompt's half",
        only="skipped"),
    HelpWords("guidance", "flow.closed_form", "exact", GUIDANCE,
        "'closed form': RTC's correction without autograd",
        only="closed form"),
    HelpWords("conditioning", "flow.context:CONDITIONING", "exact", STRUCTURE,
        "once: what denoising steps make of the observation alone is computed once a chunk",
        only="once"),
    HelpWords("last_block", "flow.unread:LAST_BLOCK", "exact", STRUCTURE,
        "read_rows: the last block of a denoising transformer is computed for the actions' rows alone",
        only="read_rows"),
    HelpWords("rotations", "layers.rotations", "exact", STRUCTURE,
        "once: V-JEPA 2's rotary positions are computed once, and rotate all three axes in one product",
        only="once"),
    HelpWords("projections", "layers.projections", "rounding", STRUCTURE,
        "'fused': query, key and value as one matrix product, gate and up as another",
        only="fused"),
    HelpWords("weights", "layers.packed", "rounding", STRUCTURE + 1,  # after projections are fused: packed together
        "packed: linear layers keep their weights as the CPU's matrix kernels read them; weights.part=PATH for one "
        "module",
        only="packed", options=("part",)),
    HelpWords("attention", "layers.attention", "rounding", STRUCTURE,
        "'sdpa': torch's fused attention where the model computes it step by step",
        only="sdpa"),
    HelpWords("scores", "layers.products", "rounding", STRUCTURE + 1,  # after attention=sdpa, in whose place it comes
        "products: attention in bfloat16 as matrix products and a softmax between them (CPU, AVX-512)",
        only="products"),
    HelpWords("amp", "training_step:AMP", "rounding", TRAINING,
        "training: autocast to bf16 or fp16"),
    HelpWords("fused", "training_step:FUSED", "rounding", TRAINING,
        "training: the optimizer's fused form",
        only=True),
    HelpWords("foreach", "training_step:FOREACH", "rounding", TRAINING,
        "training: the optimizer's foreach form",
        only=True),
    HelpWords("forloop", "training_step:FORLOOP", "rounding", TRAINING,
        "training: the optimizer's forloop form",
        only=True),
    HelpWords("accumulate", "training_step:ACCUMULATE", "rounding", TRAINING,
        "training: the batch in N micro-batches"),
    HelpWords("engine", "engines.engine", "rounding", COMPILED - 1,  # a compiled region goes around it
        "openvino (CPU) or tensorrt (CUDA) for engine.part=PATH, with engine.precision=fp32, bf16 or fp16",
        options=("part", "precision"), untried=("TensorRT",)),
    HelpWords("int8_engine", "engines.calibrated", "lossy", COMPILED - 1,  # a compiled region goes around it
        "openvino (CPU): int8_engine.part=PATH in 8 bits, convolutions too, calibrated on the observations",
        options=("part",)),
    HelpWords("compile", "engines.compile", "rounding", COMPILED,
        f"torch.compile, with a mode: {', '.join(MODES)}; with compile.part=PATH for one method or module alone",
        options=("part",), untried=("compile=reduce-overhead",)),
    HelpWords("graph", "graphs.graph", "exact", CAPTURED,
        f"a CUDA graph of a flow policy's prefix or its denoising loop, or of the whole sampling: "
        f"{', '.join(GRAPHS)}",
        untried=("CUDA graphs",)),
    HelpWords("memory", "process_settings:MEMORY", "exact", PROCESS,
        "kept: freed memory stays with the process, not fetched from the kernel again in every call (CPU, glibc)",
        only="kept"),
    HelpWords("threads", "process_settings:THREADS", "rounding", PROCESS,
        "the number of threads of torch on the CPU (engines have their own); one fewer than the cores leaves one to "
        "the cameras and the control loop"),
)
# fmt: on
WORDS = {words.key: words for words in TABLE}
