"""Chunks: absolute in and out, prefixes kept, wrong use told in one line."""

from __future__ import annotations

import pytest
import torch

from strobe.lerobot.versions import actions_left


def observation(batch):
    return {key: value for key, value in batch.items() if key.startswith("observation")}


def test_a_shift_of_state_and_actions_shifts_the_chunk(make):
    policy, batch = make(state=4, action=4)
    seen = observation(batch)
    prefix = torch.randn(2, 3, 4).double()
    shift = torch.tensor([10.0, -3.0, 0.5, 100.0]).double()
    there = {**seen, "observation.state": seen["observation.state"] + shift}
    plain = policy.predict_action_chunk(seen, delay=2, action_prefix=prefix)
    torch.testing.assert_close(policy.predict_action_chunk(there, 2, prefix + shift), plain + shift)
    assert plain.shape == (2, 6, 4)


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_the_chunk_begins_with_the_prefix_exactly(make, delay):
    policy, batch = make()
    prefix = torch.randn(2, 5, 4).double()
    chunk = policy.predict_action_chunk(observation(batch), delay=delay, action_prefix=prefix)
    assert torch.equal(chunk[:, :delay], prefix[:, :delay])
    assert not torch.isclose(chunk[:, delay:5], prefix[:, delay:5]).any()
    beyond = torch.cat([prefix[:, :delay], 1e3 + prefix[:, delay:]], dim=1)
    assert torch.equal(policy.predict_action_chunk(observation(batch), delay, beyond), chunk)


def test_dimensions_beyond_the_states_stay_absolute(make):
    policy, batch = make(state=2, action=4)
    seen = observation(batch)
    there = {**seen, "observation.state": seen["observation.state"] + 5}
    moved = policy.predict_action_chunk(there) - policy.predict_action_chunk(seen)
    torch.testing.assert_close(moved, torch.tensor([5.0, 5, 0, 0]).double().expand(2, 6, 4))


def test_the_rollouts_words_mean_the_same(make, caplog):
    policy, batch = make(batch=1)
    seen = observation(batch)
    left_over = torch.randn(5, 4).double()
    wanted = policy.predict_action_chunk(seen, 2, left_over[None])
    assert torch.equal(policy.predict_action_chunk(seen, inference_delay=2, prev_chunk_left_over=left_over), wanted)
    # The first chunk has nothing to continue, and a short left-over is filled up with zeros.
    first = policy.predict_action_chunk(seen, inference_delay=0, prev_chunk_left_over=None)
    assert torch.equal(policy.predict_action_chunk(seen, inference_delay=3, prev_chunk_left_over=None), first)
    short = torch.cat([left_over[:2], torch.zeros(3, 4).double()])
    assert torch.equal(policy.predict_action_chunk(seen, inference_delay=3, prev_chunk_left_over=short), wanted)
    # A delay over the maximum is a guess of the rollout's that cannot be refused in mid-motion.
    most = policy.predict_action_chunk(seen, 3, left_over[None])
    assert torch.equal(policy.predict_action_chunk(seen, inference_delay=9, prev_chunk_left_over=left_over), most)
    _, warning = caplog.messages  # the first is about the statistics
    assert "only 2 actions can be given as a prefix" in warning


def test_the_states_change_comes_from_earlier_calls(make):
    policy, batch = make(past=False, use_rtc=False, n_action_steps=1, obs_state_delta_frames=2)
    alone, states = observation(batch), torch.randn(5, 2, 3).double()
    for at, state in enumerate(states):
        earlier = states[max(at - 2, 0)]
        with_time = {**alone, "observation.state": torch.stack([earlier, state], dim=1)}
        wanted = policy.predict_action_chunk(with_time)[:, 0]
        torch.testing.assert_close(policy.select_action({**alone, "observation.state": state}), wanted)
    policy.reset()
    still = torch.stack([states[1], states[1]], dim=1)
    torch.testing.assert_close(
        policy.select_action({**alone, "observation.state": states[1]}),
        policy.predict_action_chunk({**alone, "observation.state": still})[:, 0],
    )


def test_the_change_is_per_tick_however_rarely_the_policy_is_asked(make):
    """The second call comes four ticks after the first: that is where its prefix begins in the first chunk."""
    policy, batch = make(past=False)
    alone = observation(batch)
    first = policy.predict_action_chunk(alone)
    later = alone["observation.state"] + 4 * torch.tensor([1.0, -2.0, 0.5]).double()
    second = policy.predict_action_chunk({**alone, "observation.state": later}, 1, first[:, 4:])
    earlier = later - torch.tensor([1.0, -2.0, 0.5]).double()
    with_time = {**alone, "observation.state": torch.stack([earlier, later], dim=1)}
    torch.testing.assert_close(second, policy.predict_action_chunk(with_time, 1, first[:, 4:]))


def test_select_action_goes_through_the_chunk(make):
    policy, batch = make(use_rtc=False, n_action_steps=2, past=True)
    chunk = policy.predict_action_chunk(observation(batch))
    for step in (0, 1, 0):
        torch.testing.assert_close(policy.select_action(observation(batch)), chunk[:, step])


def test_strobe_sees_which_ticks_take_an_action_from_the_queue(make):
    """`strobe evaluate --realtime` and `strobe tune` make the world wait for a call, not for a queued action."""
    policy, batch = make(use_rtc=False, n_action_steps=3)
    left = []
    for _ in range(4):
        policy.select_action(observation(batch))
        left.append(actions_left(policy))
    assert left == [2, 1, 0, 2]
    policy.reset()
    assert actions_left(policy) == 0


WRONG = [
    ({"delay": 4}, "delay must be 0 to 3 (rtc_max_delay=3), got 4"),
    ({"delay": -1}, "delay must be 0 to 3 (rtc_max_delay=3), got -1"),
    ({"delay": 2}, "delay=2 needs an action_prefix of shape (2, at least 2, 4), got none"),
    *(
        ({"delay": 2, "action_prefix": torch.zeros(shape)}, f"(2, at least 2, 4) for delay=2, got {shape}")
        for shape in [(2, 1, 4), (2, 3, 5), (1, 3, 4), (3, 4)]
    ),
]


@pytest.mark.parametrize(("arguments", "told"), WRONG)
def test_a_wrong_prefix_is_told_in_one_line(make, arguments, told):
    policy, batch = make()
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        policy.predict_action_chunk(observation(batch), **arguments)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_policy_trained_over_delays_acts_in_sync_by_chunks_without_one(make):
    policy, batch = make(n_action_steps=2, past=True)
    chunk = policy.predict_action_chunk(observation(batch), 0)
    policy.reset()
    for step in (0, 1, 0):
        torch.testing.assert_close(policy.select_action(observation(batch)), chunk[:, step])


def test_missing_statistics_are_told_before_anything_is_predicted(make):
    from lerobot_policy_act_relative_rtc import ACTRelativeRTCPolicy

    policy, batch = make()
    bare = ACTRelativeRTCPolicy(policy.config).double()
    for call in (lambda: bare(batch), lambda: bare.predict_action_chunk(observation(batch))):
        with pytest.raises(ValueError, match=r"^act_relative_rtc has no statistics .* metadata .* checkpoint .*$"):
            call()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"chunk_size": 0}, "chunk_size must be at least 1"),
        ({"obs_state_delta_frames": 0}, "obs_state_delta_frames must be at least 1"),
        ({"n_obs_steps": 2}, "n_obs_steps must be 1"),
        ({"n_action_steps": 7}, "n_action_steps=7 is more than chunk_size=6"),
        ({"dim_model": 10}, "divisible by 4"),
        ({"n_heads": 3}, "by n_heads=3"),
        ({"vision_backbone": "vit"}, "resnets"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"kl_weight": float("nan")}, "kl_weight must be 0 or above, got nan"),
        ({"delay_training": "all"}, "one of sampled, expanded, packed, got 'all'"),
        ({"prefix_attention": "both"}, "one of two_way, one_way, got 'both'"),
        ({"rtc_max_delay": 6}, "rtc_max_delay must be 1 to chunk_size - 1 = 5, got 6"),
        ({"rtc_max_delay": 0}, "rtc_max_delay must be 1 to"),
        ({"delay_training": "packed"}, "set prefix_attention=one_way"),
        ({"normalization_mapping": {"ACTION": "MEAN_STD"}}, "normalization_mapping[ACTION] must be IDENTITY"),
    ],
)
def test_a_config_that_makes_no_sense_is_told_in_one_line(make, options, told):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make(**options)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
