"""Videos of episodes: frames of a real simulator, files in the run's folder, and the page that shows them."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lerobot.envs.factory import make_env_config
from support.fakes.made_up_simulator import MadeUp, example, plan

from strobe.core.kinds import page
from strobe.core.report import html
from strobe.evaluate.episodes import videos as film
from strobe.evaluate.episodes.play import FIRST
from strobe.evaluate.episodes.runners import LocalEpisodeRunner
from strobe.evaluate.episodes.videos import Film, Filming
from strobe.evaluate.results import Video
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions


def vector(draw=lambda: np.full((120, 641, 3), 7, np.uint8)):
    return SimpleNamespace(envs=[SimpleNamespace(render=draw)])


def decode_video(content: bytes) -> tuple[int, tuple[int, int]]:
    import av

    frames: list[Any] = []
    with av.open(io.BytesIO(content), "r") as container:
        frames += container.decode(video=0)
    return len(frames), (frames[0].width, frames[0].height)


def test_a_real_episode_is_filmed_and_its_times_and_its_end_stay_as_they_are(tmp_path):
    env = make_env_config("pusht", episode_length=9)
    subject = load_subject(
        PolicyOptions(type="diffusion", size="tiny", overrides=["--device=cpu"]), InputOptions(env=env)
    )
    asked = plan(2)
    stage = LocalEpisodeRunner(env, {"": subject})
    filming = Filming(stage, asked, 1, tmp_path, env.fps)
    try:
        plain = stage.play(asked.candidates[0], "pusht", 0)
        shown = filming.play(asked.candidates[0], "pusht", 0)
        filming.play(asked.candidates[0], "pusht", 1)
    finally:
        stage.close()
    same = {"start", "success", "reward", "ticks"}
    assert plain.model_dump(include=same) == shown.model_dump(include=same)
    (video,) = filming.videos({(FIRST, "pusht", 0): shown, (FIRST, "pusht", 1): shown})
    assert (video.seed, video.success, video.seconds) == (0, False, 0.9)
    assert decode_video((tmp_path / video.file).read_bytes()) == (9, (320, 320)), "10 Hz: each tick but the last"
    assert filming.notes == []


def test_drawing_between_ticks_is_not_in_the_simulators_times():
    from strobe.core.timeline.probe import Hook
    from strobe.simulators.simulator import RENDER, RESET, STEP, _Stopwatch

    now, inside, watch = SimpleNamespace(), SimpleNamespace(), _Stopwatch(torch.device("cpu"))

    def wrap_inner(name, inner):
        return watch.wrap(inner, Hook(now, "x", name), False)

    inside.render = wrap_inner(RENDER, lambda: None)
    step = wrap_inner(STEP, inside.render)
    wrap_inner(RESET, inside.render)()
    inside.render()
    assert watch.times().render_ms is None, "a frame of the film after the reset"
    step()
    seen = watch.times().render_ms
    assert seen is not None
    inside.render()
    assert watch.times().render_ms == seen


def test_frames_are_few_and_small_and_long_episodes_get_fewer(monkeypatch):
    film = Film(80.0)
    for _ in range(161):
        film(vector())
    assert (len(film.frames), film.rate) == (21, 10.0)
    assert film.frames[0].shape == (60, 320, 3)
    film.cut(160)
    assert len(film.frames) == 20, "the frame after the last tick may be of the next episode"
    monkeypatch.setattr("strobe.evaluate.episodes.videos.MOST", 10)
    long = Film(10.0)
    for _ in range(41):
        long(vector())
    assert len(long.frames) <= 10
    assert long.rate == 10.0 / 8


@pytest.mark.parametrize("draws", [lambda: None, lambda: 1 / 0], ids=["nothing", "an error"])
def test_a_simulator_that_cannot_draw_costs_a_note_and_no_episode(draws, tmp_path):
    class Blind(MadeUp):
        watch = None

        def play(self, candidate, task, seed):
            self.watch(vector(draws))
            return super().play(candidate, task, seed)

    asked = plan(3)
    blind: Any = Blind()  # it cannot be watched
    filming = Filming(blind, asked, 3, tmp_path, 10.0)
    lines = {(FIRST, "pusht", seed): filming.play(asked.candidates[0], "pusht", seed) for seed in range(3)}
    assert filming.videos(lines) == []
    assert len(filming.notes) == 1
    assert filming.notes[0].startswith("videos: ")


def test_without_h264_a_video_is_an_animated_image(monkeypatch):
    from PIL import Image

    monkeypatch.setattr(film, "_mp4", lambda *_: (_ for _ in ()).throw(ValueError("no libx264")))
    content, ending = film.encode([np.full((20, 30, 3), shade, np.uint8) for shade in (0, 120, 255)], 5.0)
    assert ending == ".webp"
    image: Any = Image.open(io.BytesIO(content))
    assert image.n_frames == 3


def result_with_videos(folder: Path, *files: str):
    result = example()
    (folder / "videos").mkdir()
    for file in files:
        (folder / "videos" / file).write_bytes(b"clip of " + file.encode())
    result.videos = [
        Video(variant=variant, task="pusht", seed=3, success=won, seconds=2, file=f"videos/{file}")
        for variant, won, file in zip((FIRST, "2 steps"), (True, False), files, strict=True)
    ]
    return result


def test_the_page_shows_the_variants_of_a_start_side_by_side(tmp_path, monkeypatch):
    result = result_with_videos(tmp_path, "a.mp4", "b.anim.webp")
    text = page(result, folder=tmp_path)
    assert '<video src="data:video/mp4;base64,' in text
    assert '<img src="data:image/webp;base64,' in text
    assert text.index("pusht, seed 3") < text.index("success, 2.0 s") < text.index("failure, 2.0 s")
    monkeypatch.setattr(html, "MOST_BYTES", 10)
    text = page(result, folder=tmp_path)
    assert '<a href="./videos/a.mp4">' in text, "too large to send: links"
    assert "data:video" not in text


def test_a_result_from_elsewhere_reads_no_other_file(tmp_path):
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (tmp_path / "run").mkdir()
    result = result_with_videos(tmp_path / "run", "a.mp4", "b.mp4")
    result.videos[0].file = "../secret.mp4"
    result.videos[1].file = str(tmp_path / "secret.mp4")
    assert "data:video" not in page(result, folder=tmp_path / "run")
