"""Rules on the levers of training, on planted comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.findings_results import N, measured, put_on, result, rules, treated

from strobe.results.answer import CompareResult
from strobe.results.comparison import Comparison, GradientAgreement, Verdict
from strobe.results.data import Interval
from strobe.results.measurement import Memory
from strobe.results.traits import Traits, TreatmentTraits

PARTS = {"forward": 40.0, "backward": 50.0, "optimizer": 5.0}


def agreement(cosine: float = 0.9999, **fields: Any) -> GradientAgreement:
    given: dict[str, Any] = {
        "loss": 1.01,
        "baseline_loss": 1.0,
        "loss_error": 0.01,
        "error": 0.01,
        "seed_cosine": 0.995,
    }
    return GradientAgreement(cosine=cosine, **(given | fields))


def run(
    ratio: float,
    *,
    kind: str = "faster",
    levers: Sequence[TreatmentTraits] = (put_on("amp", "bf16"),),
    same: GradientAgreement | None = None,
    held: tuple[int, int] = (2**30, 2**30),
    phase: str = "training step",
) -> CompareResult:
    verdict = Verdict(
        kind=kind,  # type: ignore[arg-type]
        ratio=ratio,
        interval=Interval(low=ratio - 0.01, high=ratio + 0.01, level=0.99),
        pairs=N,
        sentence="",
    )
    memory = [Memory(peak_activations=value) for value in held]
    made = result(
        measured(PARTS, name="as it is", phase=phase, traits=Traits(batch_size=8), memory=memory[0]),
        measured(
            PARTS,
            name="it",
            phase=phase,
            whole=100 * ratio,
            traits=treated(*levers, batch_size=8, build_s=1.0),
            memory=memory[1],
        ),
        of=CompareResult,
    )
    made.comparisons.append(
        Comparison(baseline="as it is", candidate="it", verdict=verdict, difference_ms=1.0, gradient=same)
    )
    return made


def of_levers(made: CompareResult) -> dict[str, Any]:
    found = rules(made)
    return {rule: found[rule] for rule in found if rule.startswith(("lever", "accumulation", "float16"))}


@pytest.mark.parametrize(
    ("lever", "words"),
    [
        (put_on("amp", "bf16", lerobot_flag="--policy.use_amp=true"), "--policy.use_amp=true"),
        (put_on("amp", "fp16"), "no flag"),
        (put_on("tf32"), "always"),
        (put_on("compile", "default", lerobot_flag="--policy.compile_model=true"), "compile_model"),
        (put_on("fused"), "no flag"),
    ],
)
def test_a_lever_that_pays_is_told_in_lerobot_trains_spelling(lever: TreatmentTraits, words: str):
    found = of_levers(run(0.7, levers=[lever], same=agreement()))
    assert len(found) == 1
    (finding,) = found.values()
    assert finding.rule.endswith("pays")
    assert words in finding.do
    assert "30 %" in finding.title
    assert finding.evidence["gain_share"] == pytest.approx(0.3)


def test_levers_together_are_spelt_each():
    found = of_levers(run(0.6, levers=[put_on("amp", "bf16"), put_on("tf32"), put_on("fused")], same=agreement()))
    assert list(found) == ["lever-amp-tf32-fused-pays"]
    assert "tf32: lerobot-train always" in found["lever-amp-tf32-fused-pays"].do


def test_a_lever_that_does_nothing_says_so():
    found = of_levers(run(1.0, kind="no difference shown", levers=[put_on("channels_last")], same=agreement()))
    assert list(found) == ["levers-without-effect"]
    assert "No difference shown: it (−1.0 to +1.0 %)" in found["levers-without-effect"].seen
    slower = of_levers(run(1.3, kind="slower", same=agreement()))
    assert "Slower: it" in slower["levers-without-effect"].seen


def test_noise_is_no_finding():
    assert not of_levers(run(0.7, kind="too noisy", same=agreement()))


def test_a_fast_lever_that_turns_the_gradient_is_a_warning_and_no_advice():
    found = of_levers(run(0.5, same=agreement(cosine=0.4)))
    assert list(found) == ["lever-amp-turns-gradient"]
    assert found["lever-amp-turns-gradient"].level == "warning"


def test_what_other_noise_does_anyway_is_no_warning():
    assert list(of_levers(run(0.5, same=agreement(cosine=0.9, seed_cosine=0.5)))) == ["lever-amp-pays"]
    compiled = [put_on("compile", "default")]
    noisy = agreement(cosine=0.45, seed_cosine=0.5, own_noise=True)
    assert list(of_levers(run(0.5, levers=compiled, same=noisy))) == ["lever-compile-pays"]
    without_noise = agreement(cosine=0.9, seed_cosine=1.0, own_noise=True)
    assert list(of_levers(run(0.5, levers=compiled, same=without_noise))) == ["lever-compile-turns-gradient"]


def test_float16_that_would_lose_the_gradient_needs_its_scaler():
    found = of_levers(run(0.9, levers=[put_on("amp", "fp16")], same=agreement(underflow=0.3, overflow=0)))
    assert "30 %" in found["float16-needs-scaler"].seen
    assert "become 0" in found["float16-needs-scaler"].seen
    over = of_levers(run(0.9, levers=[put_on("amp", "fp16")], same=agreement(underflow=0.0, overflow=7)))
    assert over["float16-needs-scaler"].level == "warning"
    assert "float16-needs-scaler" not in of_levers(
        run(0.9, levers=[put_on("amp", "fp16")], same=agreement(underflow=0.001, overflow=0))
    )


def test_accumulation_is_judged_by_memory_and_time():
    levers = [put_on("accumulate", 4)]
    saves = of_levers(run(1.2, kind="slower", levers=levers, same=agreement(), held=(2**30, 2**28)))
    assert list(saves) == ["accumulation-saves"]
    assert "75 % less memory and 20 % more time" in saves["accumulation-saves"].title
    wasted = of_levers(run(1.2, kind="slower", levers=levers, same=agreement(), held=(2**30, 2**30)))
    assert list(wasted) == ["accumulation-saves-nothing"]


@pytest.mark.parametrize("phase", ["training forward", "inference"])
def test_only_a_training_step_is_judged(phase: str):
    assert not of_levers(run(0.7, same=agreement(), phase=phase))


def test_something_else_that_differs_too_is_not_put_down_to_a_lever():
    assert not of_levers(
        run(0.7, levers=[put_on("amp", "bf16"), put_on("policy", None, settings={"num_steps": 2})], same=agreement())
    )
