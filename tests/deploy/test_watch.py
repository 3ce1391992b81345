"""A watched policy is compared with the baseline while it runs, and goes back to it where they part."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

os.environ["HF_HUB_OFFLINE"] = "1"

from support.builders.checkpoints import EXACT, FEW_STEPS, Saved, tiny_recipe
from support.suite.matrix import matrix

import strobe
from strobe.core.errors import UserError
from strobe.deploy import Loaded, attach_recipe_on_load, checking, watch
from strobe.deploy.twin import PolicyCall, Twin
from strobe.lerobot.policies.policy_subject import PolicySubject

BF16 = {"precision": "bf16"}


@pytest.fixture(autouse=True)
def _short_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SECONDS", 0.5)


@pytest.fixture
def load_watched(saved_policies: Saved) -> Iterator[Any]:
    """Loads a watched policy; the watching ends with the test."""
    made: list[Loaded] = []

    def load(kind: str, *treatments: Any, share: float = 1.0, **fields: Any) -> Loaded:
        made.append(strobe.load_policy(saved_policies[kind][0], tiny_recipe(kind, *treatments, **fields), watch=share))
        return made[-1]

    yield load
    for loaded in made:
        assert loaded.watch is not None
        loaded.watch.close()


def act(loaded: Any, subject: PolicySubject, seed: int, **options: Any) -> Tensor:
    """A chunk as the policy gives it."""
    torch.manual_seed(seed)
    loaded.policy.reset()
    return loaded.policy.predict_action_chunk(loaded.preprocessor(subject.observation(seed)), **options)


def act_and_wait(loaded: Any, subject: PolicySubject, seed: int) -> None:
    act(loaded, subject, seed)
    assert loaded.watch.wait()


@pytest.mark.parametrize("kind", matrix(FEW_STEPS))
def test_the_copy_acts_as_the_untouched_policy_does(kind: str, saved_policies: Saved) -> None:
    """To the bit, beside any treatment, with noise of its own, and without a second copy of the weights."""
    subject = saved_policies[kind][1]
    batch = subject.loaded.preprocessor(subject.observation(0))
    twin = Twin(subject.policy)
    for ours, theirs in zip(twin.policy.parameters(), subject.policy.parameters(), strict=True):
        assert ours is not theirs
        assert ours.data_ptr() == theirs.data_ptr()
    before = {name: value.clone() for name, value in subject.policy.state_dict().items()}
    torch.manual_seed(4)
    call = PolicyCall.record_call(subject.policy, subject.device, (dict(batch),), {})
    expected = subject.policy.predict_action_chunk(dict(batch))
    subject.policy.reset()
    flow = kind in ("smolvla", "pi05")
    for treatments in (
        [*EXACT, {"projections": "fused"}, BF16] if flow else [{"channels_last": True}, BF16],
        [{"int8": "dynamic"}],
    ):
        applied = checking.apply_checked_recipe(subject, tiny_recipe(kind, *treatments), "fast.yaml", check=False)
        try:
            torch.manual_seed(77)
            state = torch.get_rng_state()
            treated = subject.policy.predict_action_chunk(dict(batch))
            torch.set_rng_state(state)
            assert torch.equal(twin.predict(call), expected)
            assert torch.equal(torch.get_rng_state(), state)
            assert not torch.equal(treated, expected)
        finally:
            applied.undo()
            subject.policy.reset()
    for name, value in subject.policy.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} was written to in place"


@pytest.mark.parametrize("kind", matrix(FEW_STEPS))
def test_chunks_are_compared_and_no_program_notices(kind: str, saved_policies: Saved, load_watched: Any) -> None:
    subject = saved_policies[kind][1]
    loaded = load_watched(kind, BF16)
    plain = strobe.load_policy(saved_policies[kind][0], tiny_recipe(kind, BF16))
    for seed in range(3):
        with torch.inference_mode(seed == 1):  # as lerobot-rollout calls it
            ours = act(loaded, subject, seed)
        state = torch.get_rng_state()
        assert loaded.watch.wait()
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(ours, act(plain, subject, seed))
        assert torch.equal(torch.get_rng_state(), state)
    record = loaded.watch
    assert (record.seen, record.checked, record.skipped) == (3, 3, 0)
    assert 0 < record.worst.rms < 0.02
    assert record.fallen_back is None
    assert record.failed is None


def test_queues_of_observations_reach_the_untouched_policy(saved_policies: Saved, load_watched: Any) -> None:
    """Diffusion makes its chunks from what its queues hold, not from what it is called with."""
    subject = saved_policies["diffusion"][1]
    loaded = load_watched("diffusion", {"channels_last": True})
    seen = {k: v[:, -1] if isinstance(v, Tensor) else v for k, v in subject.observation(0).items()}
    loaded.policy.reset()
    torch.manual_seed(0)
    for _ in range(loaded.policy.config.n_action_steps + 1):
        loaded.policy.select_action(loaded.preprocessor(dict(seen)))
        assert loaded.watch.wait()
    assert loaded.watch.checked == 2
    assert loaded.watch.worst.worst < 1e-4


def test_calls_with_rtc_are_compared_as_they_are_made(saved_policies: Saved, load_watched: Any) -> None:
    """A program turns Real-Time Chunking on after it has loaded the policy, and may turn it off again."""
    from lerobot.policies.rtc.configuration_rtc import RTCConfig

    subject = saved_policies["smolvla"][1]
    loaded = load_watched("smolvla", {"guidance": "closed form"}, BF16)
    loaded.policy.config.rtc_config = RTCConfig(enabled=True, execution_horizon=6)
    loaded.policy.init_rtc_processor()
    left_over = torch.full((6, 6), 0.7)
    free = act(loaded, subject, 0)
    assert loaded.watch.wait()
    guided = act(loaded, subject, 0, inference_delay=2, prev_chunk_left_over=left_over)
    assert loaded.watch.wait()
    assert (guided - free).abs().max() > 0.1
    assert loaded.watch.checked == 2
    assert loaded.watch.worst.rms < 0.02


def test_a_chunk_that_breaks_the_guard_brings_the_untouched_policy_back(
    saved_policies: Saved, load_watched: Any, caplog: pytest.LogCaptureFixture
) -> None:
    folder, subject = saved_policies["act"]
    loaded = load_watched("act", BF16)
    act(loaded, subject, 0)
    assert loaded.watch.wait()
    loaded.policy.model.action_head.bias.data[2] += 0.5  # of the copy in bfloat16
    with pytest.warns(UserWarning, match="chunk 2 exceeds its limit: .* σ.*, limit .*joint_2.*baseline runs"):
        act_and_wait(loaded, subject, 1)
    assert [r.getMessage() for r in caplog.records if r.name == "strobe"] == [f"strobe: {loaded.watch.fallen_back}"]
    baseline = strobe.load_policy(folder)
    assert torch.equal(act(loaded, subject, 1), act(baseline, subject, 1))
    assert {p.dtype for p in loaded.policy.parameters()} == {torch.float32}
    assert "predict_action_chunk" not in vars(loaded.policy)
    assert (loaded.watch.seen, loaded.watch.checked) == (2, 2)


def test_what_a_program_put_on_top_stays_there(saved_policies: Saved, load_watched: Any) -> None:
    folder, subject = saved_policies["act"]
    loaded = load_watched("act", BF16)
    inner, calls = loaded.policy.predict_action_chunk, []
    loaded.policy.predict_action_chunk = lambda *a, **k: calls.append(1) or inner(*a, **k)
    loaded.policy.model.action_head.bias.data += 0.5
    with pytest.warns(UserWarning, match="exceeds its limit"):
        act_and_wait(loaded, subject, 0)
    for _ in range(2):
        assert torch.equal(act(loaded, subject, 1), act(strobe.load_policy(folder), subject, 1))
    assert len(calls) == 3


def test_the_program_never_waits_for_the_untouched_policy(
    saved_policies: Saved, load_watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = saved_policies["act"][1]
    loaded = load_watched("act", BF16)
    predict, goes_on = Twin.predict, threading.Event()

    def slow(self: Twin, call: PolicyCall, **options: Any) -> Tensor:
        goes_on.wait(60)
        return predict(self, call, **options)

    monkeypatch.setattr(Twin, "predict", slow)
    for seed in range(4):
        act(loaded, subject, seed)
    assert (loaded.watch.seen, loaded.watch.checked, loaded.watch.skipped) == (4, 0, 3)
    goes_on.set()
    assert loaded.watch.wait()
    assert loaded.watch.checked == 1


def test_a_share_is_watched(saved_policies: Saved, load_watched: Any) -> None:
    subject = saved_policies["act"][1]
    loaded = load_watched("act", BF16, share=0.5)
    loaded.watch._chance.seed(0)
    for seed in range(40):
        act(loaded, subject, seed % 4)
        loaded.watch.wait()
    assert loaded.watch.seen == 40
    assert 10 <= loaded.watch.checked <= 30


def test_where_the_untouched_policy_fails_watching_ends_and_the_robot_goes_on(
    saved_policies: Saved, load_watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = saved_policies["act"][1]
    loaded = load_watched("act", BF16)

    def failing(*_: Any, **__: Any) -> Tensor:
        raise RuntimeError("no memory\nleft")

    monkeypatch.setattr(Twin, "predict", failing)
    with pytest.warns(UserWarning, match="no longer watched: the baseline fails: no memory left"):
        act_and_wait(loaded, subject, 0)
    assert next(loaded.policy.parameters()).dtype == torch.bfloat16
    act(loaded, subject, 0)
    assert (loaded.watch.checked, loaded.watch.fallen_back) == (0, None)


def test_once_closed_it_is_a_policy_loaded_without(saved_policies: Saved) -> None:
    loaded = strobe.load_policy(saved_policies["act"][0], tiny_recipe("act", BF16), watch=1.0)
    assert loaded.watch is not None
    threads = loaded.watch._thread
    loaded.watch.close()
    assert not threads.is_alive()
    chunk = act(loaded, saved_policies["act"][1], 0)
    assert torch.equal(
        chunk, act(strobe.load_policy(saved_policies["act"][0], tiny_recipe("act", BF16)), saved_policies["act"][1], 0)
    )
    assert loaded.watch.seen == 0


def test_watching_is_asked_for_at_loading_where_weights_are_let_go(saved_policies: Saved) -> None:
    folder, subject = saved_policies["act"]
    with pytest.raises(UserError, match=r"freed when it was loaded.*load it with watch=0.5, which does not free them"):
        watch(strobe.load_policy(folder, tiny_recipe("act", BF16)), 0.5)
    with pytest.raises(UserError, match="this policy has no recipe"):
        watch(strobe.load_policy(folder), 0.5)
    with pytest.raises(UserError, match="watch=2: must be a share"):
        strobe.load_policy(folder, tiny_recipe("act", BF16), watch=2)
    loaded = strobe.load_policy(folder, tiny_recipe("act", {"channels_last": True}))
    record = watch(loaded, 1.0)
    act(loaded, subject, 0)
    assert record.wait()
    assert record.checked == 1
    with pytest.raises(UserError, match="already watched"):
        watch(loaded, 1.0)
    record.close()


def test_lerobots_own_programs_are_watched_too(saved_policies: Saved) -> None:
    from lerobot.policies.factory import get_policy_class

    folder, subject = saved_policies["act"]
    kind: Any = get_policy_class("act")
    with attach_recipe_on_load(tiny_recipe("act", BF16), watch=1.0) as records:
        policy = kind.from_pretrained(folder)
    policy.predict_action_chunk(subject.loaded.preprocessor(subject.observation(0)))
    assert [record.wait() and record.checked for record in records] == [1]
    records[0].close()


def test_a_batch_of_environments_is_compared_row_by_row(saved_policies: Saved, load_watched: Any) -> None:
    subject = saved_policies["act"][1]
    loaded = load_watched("act", BF16)
    batch = loaded.preprocessor(subject.observation(0))
    rows = {
        k: v.repeat(3, *[1] * (v.dim() - 1)) if isinstance(v, Tensor) and v.dim() > 1 else v for k, v in batch.items()
    }
    loaded.policy.predict_action_chunk(rows)
    assert loaded.watch.wait()
    assert loaded.watch.worst.observations == 3
    assert "environment" in loaded.watch.worst.worst_at


def test_an_exact_recipe_is_held_to_reordered_sums(saved_policies: Saved, load_watched: Any) -> None:
    subject = saved_policies["pi05"][1]
    loaded = load_watched("pi05", *EXACT)
    assert str(loaded._applied.guard) == "exact"
    assert loaded._applied.reordered is not None
    act(loaded, subject, 0)
    assert loaded.watch.wait()
    assert (loaded.watch.checked, loaded.watch.broken) == (1, None)
    head = loaded.policy.model.action_out_proj
    inner = head.forward
    head.forward = lambda x: inner(x) * (1 + 1e-3)  # far below what a cosine sees
    with pytest.warns(UserWarning, match="it is not exact"):
        act_and_wait(loaded, subject, 1)
    assert loaded.watch.fallen_back
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        act(loaded, subject, 1)
