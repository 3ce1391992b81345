"""What a kernel computes, by its name: products by dtype, attention, norms and elementwise work, quantising, copies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from statistics import median

from strobe.traces.profiler_events import DeviceWork, is_collective
from strobe.traces.results import KernelClass, short_kernel

PRODUCTS, POINTWISE = "matrix products", "elementwise and norms"
# The first that is in a name decides: names of cuBLAS, cuDNN, CUTLASS, Triton, torch, and Tensile on ROCm.
_CLASSES = (
    (r"triton_(poi|red|per)_", POINTWISE),
    (r"flash|fmha|attention|sdpa", "attention"),
    (r"quanti[sz]|scaled_cast|absmax", "quantising"),
    (r"gemm|gemv|cutlass|nvjet|cijk_|scudnn|wgrad|dgrad|fprop|winograd|convol|conv\dd|triton_(tem|mm)_", PRODUCTS),
    (r"copy|catarray|index|gather|scatter|embedding|transpose|nchwtonhwc|nhwctonchw|fill", "copies and gathers"),
    (r"elementwise|norm|softmax|reduce|epilogue|foreach|multi_tensor|pool|dropout|bn_(fw|bw)|gammabeta", POINTWISE),
)
_DTYPES = (
    (r"e4m3|e5m2|fp8|float8|nvjet_q|_F8", ", float8"),
    (r"int8|i8816|i16832|imma|s8s8|_I8", ", int8"),
    (r"bf16|bfloat16|nvjet_t|_BB[SH]_|_BBS", ", bfloat16"),
    (r"fp16|f16f16|half|h16816|h1688|h884|hgemm|nvjet_h|_HH[SH]|_HSS|_HB_", ", float16"),
    (r"tf32|s1688", ", TF32"),
    (r"dgemm|f64|double", ", float64"),
    (r"sgemm|scudnn|fp32|f32|float|_SB_|_SS_", ", float32"),
)


@lru_cache(4096)
def kernel_class(name: str) -> str:
    """Return the class of a kernel by its name; a product's has the dtype that the name tells, if it tells one."""
    name = short_kernel(name)
    found = next((each for of, each in _CLASSES if re.search(of, name, re.IGNORECASE)), "other kernels")
    return found + next((dtype for of, dtype in _DTYPES if found == PRODUCTS and re.search(of, name)), "")


def kernel_classes(works: Iterable[DeviceWork]) -> list[KernelClass]:
    """Return the classes of kernels and copies, that with the most time first."""
    took: dict[str, list[int]] = {}
    for work in works:
        named = "collectives" if is_collective(work) else kernel_class(work.name)
        took.setdefault(named if work.kind == "kernel" else "copies and memsets", []).append(work.end - work.start)
    ordered = sorted(took.items(), key=lambda item: -sum(item[1]))
    return [KernelClass(name=of, calls=len(ns), ms=sum(ns) / 1e6, median_us=median(ns) / 1e3) for of, ns in ordered]
