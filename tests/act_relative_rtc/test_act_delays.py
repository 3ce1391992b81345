"""The three ways to train over delays compute the same thing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.suite.health import EVERY_CHECK


def gradients(policy, batch, delays=None):
    """(loss, flat gradient per parameter) with the latent's noise fixed."""
    torch.manual_seed(7)
    policy.zero_grad()
    loss, _ = policy(batch, delays)
    loss.backward()
    return loss.item(), {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in policy.named_parameters()
    }


def mean_over_delays(policy, batch):
    """The mean of passes that compute one delay each."""
    passes = [
        gradients(policy, batch, torch.full((len(batch["action"]), 1), delay))
        for delay in range(policy.config.rtc_max_delay + 1)
    ]
    loss = sum(loss for loss, _ in passes) / len(passes)
    return loss, {name: sum(grads[name] for _, grads in passes) / len(passes) for name in passes[0][1]}


def assert_same(found, wanted):
    """To 1e-9, relative to each parameter's gradient; 1e-15 of the whole is rounding (keys' biases have none)."""
    assert found[0] == pytest.approx(wanted[0], rel=1e-9)
    whole = torch.stack([gradient.norm() for gradient in wanted[1].values()]).norm()
    for name, gradient in wanted[1].items():
        assert (found[1][name] - gradient).norm() <= 1e-9 * gradient.norm() + 1e-13 * whole, name


@st.composite
def cases(draw):
    chunk = draw(st.integers(2, 7))
    options = {
        "seed": draw(st.integers(0, 10**6)),
        "batch": draw(st.integers(1, 3)),
        "state": draw(st.integers(1, 5)),
        "action": draw(st.integers(1, 5)),
        "chunk_size": chunk,
        "rtc_max_delay": draw(st.integers(1, chunk - 1)),
        "n_heads": draw(st.sampled_from([1, 2, 4])),
        "n_encoder_layers": draw(st.integers(1, 3)),
        "n_decoder_layers": draw(st.integers(1, 2)),
        "use_vae": draw(st.booleans()),
        "past": draw(st.booleans()),
    }
    lengths = draw(st.lists(st.integers(0, chunk), min_size=options["batch"], max_size=options["batch"]))
    return options, lengths


# With a camera each pass takes a second: two cases are enough of them.
SEEING = {"image": 33, "batch": 2, "chunk_size": 4, "rtc_max_delay": 2}


@pytest.mark.slow("every delay by itself")
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=EVERY_CHECK)
@example(({**SEEING, "use_vae": True, "past": True}, [4, 2]))
@example(({**SEEING, "use_vae": False, "past": False, "n_encoder_layers": 1, "state": 5}, [3, 4]))
@given(cases())
def test_expanded_and_packed_are_the_mean_over_single_delays(make, case):
    options, lengths = case
    policy, batch = make(prefix_attention="one_way", **options)
    batch["action_is_pad"] = torch.arange(policy.config.chunk_size) >= torch.tensor(lengths)[:, None]
    wanted = mean_over_delays(policy, batch)
    for way in ("expanded", "packed"):
        policy.config.delay_training = way
        assert_same(gradients(policy, batch), wanted)
    policy.config.prefix_attention, policy.config.delay_training = "two_way", "sampled"
    wanted = mean_over_delays(policy, batch)
    policy.config.delay_training = "expanded"
    assert_same(gradients(policy, batch), wanted)


def test_sampled_computes_one_of_the_delays_per_sample_and_averages_to_all_of_them(make):
    policy, batch = make(batch=3, use_vae=False)
    batch["action_is_pad"][1, 2:] = True
    most = policy.config.rtc_max_delay
    single = [
        [policy({k: v[i : i + 1] for k, v in batch.items()}, torch.tensor([[d]]))[0].item() for d in range(most + 1)]
        for i in range(3)
    ]
    for seed in range(5):
        torch.manual_seed(seed)
        drawn = torch.randint(most + 1, (3, 1))[:, 0].tolist()
        torch.manual_seed(seed)
        loss = policy(batch)[0].item()
        assert loss == pytest.approx(sum(single[i][d] for i, d in enumerate(drawn)) / 3, rel=1e-9)
    policy.config.delay_training = "expanded"
    assert policy(batch)[0].item() == pytest.approx(sum(map(sum, single)) / (3 * (most + 1)), rel=1e-9)


@pytest.mark.parametrize(("attention", "same"), [("one_way", True), ("two_way", False)])
def test_only_two_way_lets_the_prefix_change_the_observations_tokens(make, attention, same):
    policy, batch = make(use_vae=False, prefix_attention=attention)
    seen = []
    policy.model.encoder.register_forward_hook(lambda _, __, out: seen.append(out.detach()))
    delays = torch.full((2, 1), 2)
    policy(batch, delays)
    changed = {**batch, "action": batch["action"] + torch.randn_like(batch["action"])}
    policy(changed, delays)
    observation = slice(0, seen[0].shape[1] - policy.config.rtc_max_delay)
    assert torch.equal(seen[0][:, observation], seen[1][:, observation]) == same
    assert not torch.allclose(seen[0], seen[1])


def test_what_lies_behind_the_delay_does_not_enter(make):
    policy, batch = make(use_vae=False)
    policy.eval()
    seen = []
    policy.model.encoder.register_forward_hook(lambda _, __, out: seen.append(out))
    changed = batch["action"].clone()
    changed[:, 2:] += 1
    for actions in (batch["action"], changed):
        policy({**batch, "action": actions}, torch.full((2, 1), 2))
    assert torch.equal(*seen)


def test_padding_and_known_actions_carry_no_loss(make):
    policy, batch = make(use_vae=False)
    batch["action_is_pad"][:, 4:] = True
    delays = torch.full((2, 1), 2)
    loss = policy(batch, delays)[0]
    changed = batch["action"].clone()
    changed[:, 4:] += 100
    assert policy({**batch, "action": changed}, delays)[0] == loss


def test_a_batch_with_more_actions_than_a_chunk_is_cut(make):
    policy, batch = make(use_vae=False)
    longer = {key: torch.cat([batch[key], batch[key][:, :3]], dim=1) for key in ("action", "action_is_pad")}
    delays = torch.ones(2, 1, dtype=torch.long)
    assert policy({**batch, **longer}, delays)[0] == policy(batch, delays)[0]
    with pytest.raises(ValueError, match="4 actions per sample, fewer than"):
        policy({**batch, "action": batch["action"][:, :4]})


def test_without_rtc_there_is_no_prefix(make):
    policy, batch = make(use_rtc=False)
    assert not [name for name, _ in policy.named_parameters() if "prefix" in name]
    loss, parts = policy(batch)
    assert loss.item() == pytest.approx(parts["l1_loss"] + policy.config.kl_weight * parts["kld_loss"])
