"""Inputs are what inference and training really hand to the preprocessor."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs.factory import make_env_config

from strobe.core.errors import UserError
from strobe.core.families.registry import list_types_having
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.simulators.scripted import record_pusht


def make_config(kind: str, ticks: int | None = None):
    return lerobot_policies.config_from_type(kind, ["--device=cpu", *([f"--n_obs_steps={ticks}"] if ticks else [])])


@pytest.mark.parametrize(
    ("kind", "ticks", "lead"), [("act", None, (1,)), ("diffusion", None, (1, 2)), ("diffusion", 1, (1,))]
)
def test_frames_of_a_recording_run_a_policy(
    kind: str, ticks: int | None, lead: tuple[int, ...], recording: Path
) -> None:
    config = make_config(kind, ticks)
    made = inputs.from_dataset(config, recording, count=3)
    assert len(made.observations) == 3
    image = made.observations[0]["observation.image"]
    assert image.shape == (*lead, 3, 96, 96)
    assert image.dtype == torch.float32
    # LeRobot's datasets give one tick's image without the dimension of ticks, and its state with it.
    state_lead = (1, 1) if (kind, ticks) == ("diffusion", 1) else lead
    assert made.observations[0]["observation.state"].shape == (*state_lead, 2)
    assert 0 <= float(image.min()) <= float(image.max()) <= 1
    assert made.observations[0]["task"].startswith("push")
    loaded = lerobot_policies.load(config, made, size="tiny")
    actions = loaded.policy.predict_action_chunk(loaded.preprocessor(dict(made.observations[0])))
    assert torch.isfinite(loaded.postprocessor(actions)).all()
    batch = made.batch(2)
    length = len(config.action_delta_indices or [])
    assert batch["action"].shape == (2, length, 2)
    assert batch["action_is_pad"].shape == (2, length)
    assert batch["observation.image"].dtype == torch.float32
    loss, _ = loaded.policy.forward(loaded.preprocessor(batch))
    assert torch.isfinite(loss)


@pytest.mark.parametrize("ticks", [1, 2])
def test_frames_of_an_environment_run_a_policy(ticks: int) -> None:
    config = make_config("diffusion", ticks)
    made = inputs.from_env(config, make_env_config("pusht"), count=2)
    assert made.features["observation.image"].shape == (3, 96, 96)
    loaded = lerobot_policies.load(config, made, size="tiny")
    actions = loaded.policy.predict_action_chunk(loaded.preprocessor(dict(made.observations[1])))
    assert torch.isfinite(actions).all()
    assert torch.isfinite(loaded.policy.forward(loaded.preprocessor(made.batch(2)))[0])


def test_synthetic_inputs_are_seeded() -> None:
    config = make_config("act")
    first, again, other = (inputs.synthetic(config, tiny=True, seed=s) for s in (1, 1, 2))
    key = "observation.images.front"
    assert torch.equal(first.observations[0][key], again.observations[0][key])
    assert not torch.equal(first.observations[0][key], other.observations[0][key])
    assert torch.equal(first.batch(3)["action"], again.batch(3)["action"])


def test_full_size_synthetic_inputs_are_an_so101() -> None:
    made = inputs.synthetic(make_config("act"), count=1)
    assert made.observations[0]["observation.images.front"].shape == (1, 3, 480, 640)
    assert made.observations[0]["observation.state"].shape == (1, 6)


@given(size=st.integers(1, 5), kind=st.sampled_from(["act", "diffusion", "smolvla"]))
@settings(max_examples=12, deadline=None)
def test_a_batch_has_the_shape_of_the_policys_deltas(size: int, kind: str) -> None:
    config = make_config(kind)
    batch = inputs.synthetic(config, tiny=True).batch(size)
    deltas = config.observation_delta_indices
    state = (size, 6) if deltas is None else (size, len(deltas), 6)
    assert batch["observation.state"].shape == state
    assert batch["action"].shape == (size, len(config.action_delta_indices or []), 6)
    assert len(batch["task"]) == size


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, p: inputs.from_dataset(c, p / "nothing"), "is not a folder"),
        (lambda c, p: inputs.from_dataset(c, p), "no meta/info.json"),
        (lambda c, p: inputs.from_dataset(c), "--dataset.root"),
        (lambda c, p: inputs.from_dataset(c, repo_id="some/data"), "Hub cannot be reached"),
        (lambda c, p: inputs.synthetic(c, tiny=True).batch(0), "at least one"),
        (lambda c, p: record_pusht(p / "x", episodes=0), "at least one episode"),
    ],
)
def test_a_mistake_is_one_clear_line(call, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as caught:
        call(make_config("act"), tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_tiny_policy_gets_as_many_cameras_of_the_same_names_and_small_ones() -> None:
    def cameras(kind: str, tiny: bool) -> dict[str, tuple[int, ...]]:
        made = inputs.synthetic(make_config(kind), tiny=tiny, count=1).features
        return {name: one.shape for name, one in made.items() if one.type is FeatureType.VISUAL}

    for kind in set(list_types_having(lambda family: family.tiny)) & set(lerobot_policies.known_types()):
        small, usual = cameras(kind, True), cameras(kind, False)
        assert small.keys() == usual.keys(), kind
        assert {shape[1:] for shape in small.values()} == {(64, 64)}, kind


def test_a_policy_with_features_of_its_own_says_which_cameras_it_takes() -> None:
    config = make_config("act")
    config.input_features = {"observation.state": PolicyFeature(FeatureType.STATE, (6,))}
    with pytest.raises(UserError, match="this one has none"):
        inputs.synthetic(config, cameras=1)
    config.input_features["observation.images.depth"] = PolicyFeature(FeatureType.VISUAL, (1, 32, 32))
    with pytest.raises(UserError, match=r"this one has observation\.images\.depth"):
        inputs.synthetic(config, image_size=(64, 64))


def test_the_synthetic_robot_has_as_many_joints_as_are_named_where_the_policy_takes_any() -> None:
    two_arms = {"observation.state": 14, "action": 16}
    made = inputs.synthetic(make_config("act"), tiny=True, vectors=two_arms, count=1)
    assert made.observations[0]["observation.state"].shape == (1, 14)
    assert made.features["action"].shape == made.batch(2)["action"].shape[-1:] == (16,)
    config = make_config("act")
    config.input_features = {"observation.state": PolicyFeature(FeatureType.STATE, (6,))}
    with pytest.raises(UserError, match=r"this one has observation\.state of 6 numbers$"):
        inputs.synthetic(config, vectors=two_arms)


def test_a_broken_dataset_is_named(tmp_path: Path) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        inputs.from_dataset(make_config("act"), tmp_path)


def test_a_recording_is_never_overwritten(recording: Path) -> None:
    before = sorted(recording.rglob("*"))
    with pytest.raises(UserError, match="not empty"):
        record_pusht(recording)
    assert sorted(recording.rglob("*")) == before


def test_recording_tells_its_progress_and_makes_a_video(recording: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    record_pusht(tmp_path / "new", 1, 3, image=96, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert list(recording.rglob("*.mp4"))


@pytest.mark.parametrize(("kind", "ticks"), [("act", None), ("diffusion", 2)])
def test_an_environment_draws_the_images_that_are_read_and_they_are_the_right_ones(
    kind: str, ticks: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gym_pusht.envs import PushTEnv

    drawn: list[int] = []
    render = PushTEnv._render
    monkeypatch.setattr(PushTEnv, "_render", lambda *args, **more: (drawn.append(1), render(*args, **more))[1])
    config = make_config(kind, ticks)
    seldom = inputs.from_env(config, make_env_config("pusht"))
    of_each = 1 if ticks is None else ticks
    assert len(drawn) == inputs.EPISODES * of_each, "four observations, one of each episode"
    checks, batch = seldom.checks(), seldom.batch(40)

    # All of them, as where it is not known that the simulator draws nothing but observations.
    monkeypatch.setattr("strobe.lerobot.envs.seldom_rendered._UNWATCHED", ())
    drawn.clear()
    always = inputs.from_env(config, make_env_config("pusht"))
    assert len(drawn) == inputs.EPISODES * (4 * inputs.STRIDE + config.n_obs_steps)
    every, same = always.checks(), always.batch(40)
    assert len(drawn) == inputs.EPISODES * (4 * inputs.STRIDE + config.n_obs_steps), "nothing is played again"

    key = "observation.image"
    for one, other in (
        (seldom.observations, always.observations),
        (checks.observations, every.observations),
        (checks.neighbours, every.neighbours),
        ([batch], [same]),
    ):
        assert len(one) == len(other)
        assert all(torch.equal(a[key], b[key]) for a, b in zip(one, other, strict=True))
    assert torch.allclose(seldom.stats["observation.state"]["min"], always.stats["observation.state"]["min"])
