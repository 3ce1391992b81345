"""The pages for those who come from another kit: each of its flags, columns and files has a row that says what is here.

The kits' documents are no part of this repository. What they name is listed here. Where the documents lie beside it,
their flags, files and columns of tables are compared with the list.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.places import ROOT

PAGES = ROOT / "docs" / "coming-from"

# Page → (number of the kit's document, its flags, its columns and lines of output, its files).
KITS: dict[str, tuple[str, str, list[str], str]] = {
    "act-relative-rtc": (
        "000", "",
        ["Component", "Time (ms)", "% of Forward", "Full forward", "Backbone (ResNet)", "Image projection", "Encoder",
         "Decoder", "Other", "VAE encoder", "torch.cuda.Event", "warmup", "peak GPU memory", "run multiple times",
         "model.train()", "nvidia-smi", "batch expansion", "rtc_max_delay", "vision_backbone", "240×320", "resnet50"],
        "benchmark_forward_pass.py",
    ),
    "rtc-toolkit": (
        "001",
        "--policy_path --device --num_iterations --execution_horizon --enable_rtc_profiling --use_torch_compile "
        "--warmup_iterations --policy.path --policy.device --rtc.enabled --rtc.execution_horizon --robot.type "
        "--robot.port --robot.cameras --task --duration",
        ["Metric", "Without RTC", "With RTC", "Difference", "Mean time (ms)", "Throughput (iter/s)", "VERDICT",
         "Function", "Count", "Mean (ms)", "Total (s)", "iteration.policy_inference", "iteration.preprocessing",
         "Postprocessing", "rtc.denoise_step.guidance_computation", "rtc.denoise_step.autograd_correction",
         "Base denoising", "Guidance compute", "Autograd correct", "RTC overhead", "KEY INSIGHTS", "Apple silicon",
         "max_guidance_weight", "enable_profiling", "profile_section", "profile_method", "print_profiling_summary"],
        "eval_with_real_robot_profiled.py profile_rtc_comparison.py profile_pi0_rtc_detailed.py add_rtc_profiling.py "
        "src/lerobot/utils/profiling.py PROFILING_GUIDE.md PROFILING_QUICK_START.md",
    ),
    "vjepa2": (
        "002", "--model-size --img-size --num-frames --device --iterations --skip-detailed",
        ["Mean", "Median", "Std", "Min", "Max", "FPS", "Total parameters", "Model size", "Patch Embedding",
         "Transformer (tot)", "Per block (avg)", "Normalization", "Slowest 5", "FP32", "FP16", "Speedup", "Memory",
         "quantize_dynamic", "TorchScript", "torch.compile", "autocast", "fewer frames", "lower resolution",
         "Gradient checkpointing", "channels-last", "cuDNN", "Flash Attention", "Nsight", "kernprof", "pin memory",
         "Real-World Optimization", "chrome://tracing", "Common bottlenecks"],
        "profile_vjepa2.py vjepa2_profile.json profile.prof",
    ),
    "diffusion-training": (
        "003", "--dataset.repo_id --dataset.root --policy.type --num_workers --batch_size",
        ["persistent_workers", "prefetch_factor", "pin_memory", "caching", "transforms to GPU", "transforms.v2",
         "pre-computing", "512, 1024", "use_amp", "gradient accumulation", "cudnn.benchmark", "allow_tf32",
         "torch.compile", "cudnn.deterministic", "/dev/shm", "cache episode indices", "pre-load", "memory mapping",
         "pstats"],
        "profile_train.py profile_detailed.py profile_dataloader.py profile.sh training_profile.prof",
    ),
    "pi05-libero": (
        "004", "--task_suite_name --denoising_steps --quick --output_file",
        ["Denoising Steps", "Accuracy", "Mean Latency (ms)", "Hz", "Vision (ms)", "KV Cache (ms)", "Denoise (ms)",
         "Total", "technique", "predicted, measured, error", "20 Hz target", "torch_tensorrt", "dtype conversion",
         "mat1 and mat2", "FP8", "MLP", "Flash Attention", "CUDA Graph", "preallocated", "static timesteps",
         "component_latencies", "synchronize", "no fallback", "debug-06", "10 tasks, 10 trials", "share of the whole"],
        "scripts/libero_eval_full_optimized.py results.json",
    ),
}  # fmt: skip


# Columns of tables in the kits' documents under other words than on the pages: some are in Chinese, and some head a
# table of which each row has a row here.
TABLES = {
    "Good": "Apple silicon", "Acceptable": "Apple silicon", "Poor": "Apple silicon",
    "Bottleneck": "Common bottlenecks", "Symptom": "Common bottlenecks", "Solution": "Common bottlenecks",
    "组件": "component_latencies", "耗时 (ms)": "component_latencies", "占比": "share of the whole",
    "技术": "technique", "优化技术": "technique", "加速比": "technique",
    "配置": "debug-06", "debug-06 (无 Vision TRT)": "debug-06", "debug-07 (完整优化)": "debug-06", "提升": "debug-06",
    "文件": "debug-06", "修改内容": "debug-06", "Steps": "Denoising Steps",
    "预测 (ms)": "predicted, measured, error", "实测 (ms)": "predicted, measured, error",
    "误差": "predicted, measured, error",
}  # fmt: skip


def rows(page: str) -> list[tuple[str, str]]:
    """First cell and the rest, of each row of the tables of a page that is not its head."""
    lines = [line for line in (PAGES / f"{page}.md").read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [(row[0], " ".join(row[1:])) for row in cells if not set(row[0]) <= set("-: ")]


@pytest.mark.parametrize("page", KITS)
def test_each_flag_column_and_file_of_a_kit_has_a_row(page: str):
    _, flags, columns, files = KITS[page]
    found = rows(page)
    missing = [
        thing
        for thing in [*flags.split(), *columns, *files.split()]
        if not any(re.search(rf"(?<![\w-]){re.escape(thing)}(?!\w)", there) and here for there, here in found)
    ]
    assert not missing
    assert not [there for there, here in found if not here.strip()]


@pytest.mark.parametrize("page", KITS)
def test_the_list_has_each_flag_file_and_column_of_the_kit_s_document(page: str):
    number, flags, columns, files = KITS[page]
    seeds = next(
        (folder for folder in (parent / "shared" / "seeds" for parent in ROOT.parents) if folder.is_dir()), None
    )
    if seeds is None:
        pytest.skip("the kits' documents are not beside this repository")
    (path,) = seeds.glob(f"{number}_*.txt")
    document = path.read_text(errors="replace")
    assert set(re.findall(r"(?<![\w-])--[a-zA-Z][\w.-]*", document)) <= {*flags.split()}
    named = re.findall(r"[\w./-]+\.(?:py|sh|md|json|prof|csv)\b", document)
    assert {Path(file).name for file in named} <= {Path(file).name for file in files.split()}
    heads = re.findall(r"^\|(.*)\|\n\|[-: |]+\|$", document, re.MULTILINE)
    cells = {cell.strip() for head in heads for cell in head.split("|")}
    assert {TABLES.get(cell, cell) for cell in cells} <= {*columns}
