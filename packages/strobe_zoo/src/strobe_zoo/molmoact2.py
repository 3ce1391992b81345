"""MolmoAct2 (Allen AI 2026, LeRobot's ``policies/molmoact2``): Molmo, and an action expert that reads all its layers.

The prefix fills the cache. The expert computes keys and values of it, and the modulation of the timesteps, once.
LeRobot loads the released checkpoint from the Hub as a folder of its own kind. Each part has a placeholder here, since
the weights of a placeholder folder would have to be written first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.core.families.capabilities import Calls, Construction, InputFacts, LiveFields, Parts, Unregistered
from strobe.core.families.family import Family, Tiny, always, blocks, transformer
from strobe.core.timeline.probe import Probe
from strobe.lerobot.families import flow_parts
from strobe.lerobot.policies.standins import loading, replacing, sizes
from strobe.lerobot.sampling import WordTables
from strobe_zoo import qwen

if TYPE_CHECKING:
    from lerobot.policies.molmoact2.molmoact2_hf_model.configuration_molmoact2 import MolmoAct2Config
    from lerobot.policies.molmoact2.molmoact2_hf_model.processing_molmoact2 import MolmoAct2Processor
    from lerobot.policies.pretrained import PreTrainedPolicy

BACKBONE = "model.model"
VISION, LANGUAGE, EXPERT = (f"{BACKBONE}.{name}" for name in ("vision_backbone", "transformer", "action_expert"))
WORDS = f"{LANGUAGE}.wte"
_GRAPHS = "lerobot.policies.molmoact2.molmoact2_hf_model.inference:ActionCudaGraphManager"

_STATES = 256  # values of a joint that have a token each
# Of LeRobot's processor_molmoact2.py and molmoact2_hf_model/processing_molmoact2.py.
_IMAGE = {
    "image_patch_id": "<im_patch>",
    "image_col_id": "<im_col>",
    "image_start_token_id": "<im_start>",
    "low_res_image_start_token_id": "<low_res_im_start>",
    "frame_start_token_id": "<frame_start>",
    "image_end_token_id": "<im_end>",
    "frame_end_token_id": "<frame_end>",
    "image_low_res_id": "<im_low>",
}
_ROBOT = {f"{name}_token_id": f"<{name}>" for name in ("action_output", "action_start", "action_end", "state_start",
                                                       "state_end")}  # fmt: skip
_TOKENS = (
    *(f"<state_{number}>" for number in range(_STATES)),
    *_ROBOT.values(),
    *("<setup_start>", "<setup_end>", "<control_start>", "<control_end>"),
    *_IMAGE.values(),
)

# The classes' own defaults are not the released model's.
_TEXT: dict[str, Any] = sizes(width=2560, mlp=9728, layers=36, heads=32, kv_heads=8, head_dim=128) | {
    "vocab_size": 151936,
    "additional_vocab_size": 128,
    "qkv_bias": False,
    "use_qk_norm": True,
    "qk_norm_type": "qwen3",
}
_VIT: dict[str, Any] = {"num_hidden_layers": 27, "image_num_pos": 729, "image_default_input_size": (378, 378)}
_ADAPTER: dict[str, Any] = {"intermediate_size": 9728, "text_hidden_size": 2560}
_EXPERT: dict[str, Any] = {"num_layers": 36}
_SIDE = 56  # side of a tiny policy's images, which make 4 tokens
_TINY_TEXT = sizes(width=64, mlp=128, layers=3, heads=4, kv_heads=2, head_dim=16) | {
    "vocab_size": 1024,
}
_TINY_VIT = sizes(width=32, mlp=64, layers=4, heads=2, kv_heads=2, head_dim=16) | {
    "image_num_pos": 16,
    "image_default_input_size": (_SIDE, _SIDE),
}
_TINY_ADAPTER = {
    "vit_layers": (-1, -2),
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "text_hidden_size": 64,
}
_TINY_EXPERT = {"num_layers": 3, "hidden_size": 32, "num_heads": 2, "ffn_multiple_of": 16, "timestep_embed_dim": 16}


def probes(_: PreTrainedPolicy) -> Sequence[Probe]:
    """All cameras go through the vision backbone together."""
    vit = f"{VISION}.image_vit.transformer.resblocks"
    return [
        Probe.module(VISION, "vision backbone"),
        Probe.module(WORDS, "language embedding"),
        *transformer(vit, "block", attention="attention", mlp="feed_forward"),
        Probe.module(f"{VISION}.image_pooling_2d", "pooling", level=2),
        Probe.module(f"{VISION}.image_projector", "projector", level=2),
    ]


inference = always(
    # On a CUDA device LeRobot replays the whole loop as a graph, and no step of it is seen.
    Probe.module(LANGUAGE, flow_parts.PREFIX),
    *transformer(f"{LANGUAGE}.blocks", "layer"),
    Probe.method(EXPERT, "prepare_context", "context keys and values"),
    Probe.method(EXPERT, "get_or_prepare_modulation_cache", "timesteps"),
    Probe.function(f"{_GRAPHS}.run_action_flow", "denoising", optional=True),
    Probe.method(EXPERT, "forward_with_context", flow_parts.STEP),
    blocks(f"{EXPERT}.blocks", "block"),
    Probe.module(f"{EXPERT}.blocks.*.self_attn", "self-attention", level=3),
    Probe.module(f"{EXPERT}.blocks.*.cross_attn", "cross-attention", level=3),
    Probe.module(f"{EXPERT}.blocks.*.mlp", "MLP", level=3),
    *flow_parts.RTC,
)


training = always(
    # Both transformers run layer by layer, in turns.
    Probe.module(f"{LANGUAGE}.blocks.*", "language model"),
    Probe.method(EXPERT, "_project_kv_tensor", "context keys and values"),
    Probe.module(f"{EXPERT}.blocks.*", flow_parts.EXPERT),
    Probe.module(f"{EXPERT}.final_layer", "action head"),
)


def backbone_config(tiny: bool = False) -> MolmoAct2Config:
    """Return the config of the released model, or one of the same architecture shrunk."""
    from lerobot.policies.molmoact2.molmoact2_hf_model.configuration_molmoact2 import MolmoAct2Config

    words = _words(tiny)
    ids = {name: words.convert_tokens_to_ids(token) for name, token in {**_IMAGE, **_ROBOT}.items()}
    parts = ((_TEXT, _TINY_TEXT), (_VIT, _TINY_VIT), (_ADAPTER, _TINY_ADAPTER), (_EXPERT, _TINY_EXPERT))
    text, vit, adapter, expert = ({**full, **(small if tiny else {})} for full, small in parts)
    values: dict[str, Any] = {
        "text_config": text,
        "vit_config": vit,
        "adapter_config": adapter,
        "action_expert_config": expert,
        "initializer_range": 0.2 if tiny else 0.02,  # a narrow expert's gates would be so small that it changed nothing
        "state_token_start_id": words.convert_tokens_to_ids("<state_0>"),
        "num_state_tokens": _STATES,
        "eos_token_id": words.eos_token_id,
        "pad_token_id": words.pad_token_id,
    }
    return MolmoAct2Config(**values, **ids)


def processor(tiny: bool = False) -> MolmoAct2Processor:
    """Return a processor like that of the released model: each image is one crop of 196 tokens (4 if ``tiny``)."""
    from lerobot.policies.molmoact2.molmoact2_hf_model import image_processing_molmoact2 as images
    from lerobot.policies.molmoact2.molmoact2_hf_model import processing_molmoact2, video_processing_molmoact2

    side = _SIDE if tiny else 378
    return processing_molmoact2.MolmoAct2Processor(
        image_processor=images.MolmoAct2ImageProcessor(size={"height": side, "width": side}, crop_mode="resize"),
        video_processor=video_processing_molmoact2.MolmoAct2VideoProcessor(),
        tokenizer=_words(tiny),
        use_single_crop_col_tokens=False,
    )


def _words(tiny: bool) -> Any:
    return qwen.words(tiny, _TOKENS)


def memos(policy: Any) -> Sequence[tuple[object, str]]:
    """Return the expert's caches of the timesteps' modulation, and on CUDA the captured loop."""
    backbone = policy._backbone()
    expert = backbone.action_expert
    caches = [(expert, name) for name in ("_modulation_cache_key", "_modulation_cache_value") if expert is not None]
    graphs = backbone.action_cuda_graph_manager
    return [*caches, (graphs, "action_flow_graph")] if graphs is not None else caches


@contextlib.contextmanager
def checkpoint(config: Any, tiny: bool) -> Iterator[Sequence[str]]:
    """Fetch and read nothing from the checkpoint while open, unless it is an existing folder."""
    from lerobot.policies.molmoact2 import modeling_molmoact2, processor_molmoact2

    if Path(config.checkpoint_path).expanduser().is_dir():
        yield ()
        return
    real = modeling_molmoact2.MolmoAct2ForConditionalGeneration

    def make_checkpoint_model(_: str, *, config: object, dtype: object, **__: object) -> object:
        return real._from_config(config, dtype=dtype)

    classes = {
        f"{modeling_molmoact2.__name__}:HFMolmoAct2Config": lambda *_, **__: backbone_config(tiny),
        f"{modeling_molmoact2.__name__}:MolmoAct2ForConditionalGeneration": make_checkpoint_model,
    }
    functions = {
        f"{modeling_molmoact2.__name__}:_resolve_checkpoint_location": lambda path, **_: path,
        f"{modeling_molmoact2.__name__}:_strict_load_safetensors_weights": lambda *_: None,
        f"{processor_molmoact2.__name__}:_resolve_checkpoint_location": lambda path, **_: path,
        f"{processor_molmoact2.__name__}:_load_local_molmoact2_processor": lambda _: processor(tiny),
    }
    with loading(classes), replacing(functions):
        why = "local placeholders, because the released ones come with the weights"
        yield [f"config and processor {config.checkpoint_path}: {why}"]


FAMILY = Family(
    "molmoact2",
    ("molmoact2",),
    probes,
    training=training,
    inference=inference,
    compiled=((BACKBONE, "forward"), (EXPERT, "forward_with_context")),
    costly=(LANGUAGE, VISION, EXPERT),
    tiny=Tiny({}),
    capabilities=(
        Parts(
            seeing={"vision backbone": VISION},
            working={
                "vision_backbone": ("vision backbone",),
                "transformer": (flow_parts.PREFIX,),
                WORDS: ("language embedding",),
                "action_expert": (flow_parts.STEP,),
            },
        ),
        LiveFields(steps="num_inference_steps"),
        Construction(
            # The released checkpoint's own number of steps; its discrete mode needs a tokenizer from the Hub.
            # After 0.6.1 the language model is wrapped for LoRA unless a flag forbids it.
            flags=(
                "--action_mode=continuous",
                "--inference_action_mode=continuous",
                "--num_inference_steps=10",
                "--train_mode_vlm=fft",
            ),
            building=checkpoint,
        ),
        Unregistered(memos=memos),
        WordTables(WORDS),
        InputFacts(reads_words=True),
        Calls(seldom_looks=True),
    ),
)
