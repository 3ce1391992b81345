"""Kernels by what they compute, and the parts of a watched iteration with the work that each launched."""

from __future__ import annotations

import pytest
from support.examples.made_trace import annotation, chain, work

from strobe.core.timeline import Section
from strobe.core.timeline.trace import MARK as CLOCKS
from strobe.traces.operator_table import MARK, kernel_class, kernel_classes, operator_profile
from strobe.traces.operators import device_parts
from strobe.traces.profiler_events import parse_rows


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", "matrix products, bfloat16"),
        ("nvjet_hsh_128x64_64x6_2x1_v_bz_TNT", "matrix products, float16"),
        ("nvjet_tst_64x64_64x13_1x2_h_bz_TNN", "matrix products, bfloat16"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_nt_align4>(Params)", "matrix products, TF32"),
        ("ampere_sgemm_32x128_tn", "matrix products, float32"),
        ("sm90_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n_tilesize64x64x128", "matrix products, float8"),
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float>(T13)", "matrix products, bfloat16"),
        ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32", "matrix products, float32"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_i16832gemm_s8_128x128>(Params)", "matrix products, int8"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw", "matrix products, TF32"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Params)", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(AttentionKernel::Params)", "attention"),
        ("triton_poi_fused__scaled_dot_product_flash_attention_clone_3", "elementwise and norms"),
        ("triton_tem_fused_mm_2", "matrix products"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int)", "elementwise and norms"),
        ("void at::native::elementwise_kernel<128, 2, direct_copy_kernel_cuda>(int)", "copies and gathers"),
        ("void fbgemm_gpu::permute_2D_kernel<int>(int)", "other kernels"),
        ("per_token_quantize_kernel", "quantising"),
    ],
)
def test_a_kernels_name_tells_what_it_computes(name: str, kind: str):
    assert kernel_class(name) == kind


def test_classes_have_calls_time_and_median():
    events = [*chain(3, took=4), *work(1, 100, 110, 40, "ampere_sgemm_128x64_tn"),
              *work(2, 200, 210, 5, "Memcpy HtoD (Pinned -> Device)", cat="gpu_memcpy"),
              *work(3, 300, 310, 7, "ncclDevKernel_AllReduce_Sum_f32")]  # fmt: skip
    seen = [(each.name, each.calls, each.ms, each.median_us) for each in kernel_classes(parse_rows(events).device)]
    assert seen == [
        ("matrix products, float32", 1, 0.04, 40),
        ("elementwise and norms", 3, pytest.approx(0.012), 4),
        ("collectives", 1, 0.007, 7),
        ("copies and memsets", 1, 0.005, 5),
    ]


def test_parts_of_a_watched_iteration_have_the_work_that_they_launched():
    events = [annotation(CLOCKS, 0, 5), annotation(MARK, 10, 900), *work(1, 100, 150, 300),
              *work(2, 120, 200, 10, stream=9), *work(3, 600, 610, 50)]  # fmt: skip

    def section(name: str, start: float, took: float, *path: str) -> Section:
        begin = round((5_000 + start) * 1000)  # our clock has another origin
        return Section(name, (*path, name), begin, begin + round(took * 1000), "main")

    sections = [section(CLOCKS, 0, 5), section("policy", 20, 800), section("encoder", 90, 100, "policy"),
                section("head", 590, 100, "policy"), section("before", 6, 2)]  # fmt: skip
    parts = {"/".join(part.path): part for part in device_parts(events, sections)}
    assert list(parts) == ["policy", "policy/encoder", "policy/head"]
    encoder = parts["policy/encoder"]
    assert (encoder.calls, encoder.work, encoder.median_us) == (1, 2, 155)
    assert encoder.device_ms == pytest.approx(0.31)
    assert encoder.busy_ms == pytest.approx(0.3)  # side by side counts once
    assert (parts["policy"].work, parts["policy/head"].work) == (3, 1)
    assert operator_profile(events, "inference").kernel_classes[0].calls == 3
