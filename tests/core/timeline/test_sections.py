"""Sections: nesting, threads, exceptions, decorators, compiled regions, worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

from strobe.core.timeline import Probe, Timeline, attach, section, timed
from strobe.core.timeline.sections import _OFF


def paths(timeline: Timeline) -> list[tuple[str, ...]]:
    return [recorded.path for recorded in timeline.sections()]


# A tree of sections: each node is the list of its children.
trees = st.recursive(st.just([]), lambda children: st.lists(children, max_size=4), max_leaves=25)


@given(st.lists(trees, max_size=3))
def test_the_tree_that_ran_is_the_tree_that_is_rebuilt(forest):
    expected = []

    def enter(tree, path):
        expected.append(path)
        with section(path[-1]):
            for index, child in enumerate(tree):
                enter(child, (*path, f"{len(path)}.{index}"))

    with Timeline() as timeline:
        for index, tree in enumerate(forest):
            enter(tree, (f"0.{index}",))
    assert paths(timeline) == expected


def test_a_parent_covers_its_children_and_they_do_not_overlap():
    with Timeline() as timeline, section("parent"):
        for _ in range(3):
            with section("child"):
                time.sleep(0.001)
    parent, *children = timeline.sections()
    assert all(parent.start_ns <= child.start_ns <= child.end_ns <= parent.end_ns for child in children)
    assert all(a.end_ns <= b.start_ns for a, b in itertools.pairwise(children))
    assert all(child.ms >= 1 for child in children)


def test_without_a_timeline_a_section_is_one_shared_object_that_does_nothing():
    assert section("a") is section("b") is _OFF
    with pytest.raises(KeyError), section("a"):
        raise KeyError


def test_an_exception_passes_through_and_its_section_is_recorded():
    with Timeline() as timeline:
        with pytest.raises(ZeroDivisionError), section("outer"), section("inner"):
            _ = 1 / 0
        with section("after"):
            pass
    assert paths(timeline) == [("outer",), ("outer", "inner"), ("after",)]
    assert section("a") is section("b"), "sections are off"


def test_decorated_functions_keep_their_name_and_result():
    @timed
    def double(x: int) -> int:
        return 2 * x

    @timed("the sum")
    def add(a: int, b: int) -> int:
        return a + b

    assert double(3) == 6  # off
    with Timeline() as timeline:
        assert (double(4), add(1, 2), double.__name__) == (8, 3, "double")
    assert [recorded.name for recorded in timeline.sections()] == [double.__qualname__, "the sum"]


def test_each_thread_has_a_tree_of_its_own():
    together = threading.Barrier(3)  # a thread that has ended gives its number to the next one

    def work():
        with section("in thread"), section("inner"):
            together.wait(60)

    with Timeline() as timeline, section("main work"):
        threads = [threading.Thread(target=work, name=f"helper {i}") for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = timeline.sections()
    assert [s.path for s in found if s.thread == "main"] == [("main work",)]
    others = [s for s in found if s.thread != "main"]
    assert len({s.thread for s in others}) == 3
    assert sorted(s.path for s in others) == [("in thread",)] * 3 + [("in thread", "inner")] * 3


def test_a_timeline_inside_a_timeline_empties_neither():
    with Timeline() as outer:
        with section("a"), Timeline() as inner, section("b"):
            pass
        with section("c"):
            pass
    assert paths(outer) == [("a",), ("a", "b"), ("c",)]
    assert paths(inner) == [("b",)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_timelines_that_stop_in_another_order_leave_none_recording(order):
    timelines, folder = [Timeline().start() for _ in range(3)], os.environ.get("STROBE_SPOOL")
    running = [0, 1, 2]
    for one in order:
        timelines[one].stop()
        running.remove(one)
        with section(f"after {one}"):
            pass
        for other in range(3):
            recorded = f"after {one}" in {found.name for found in timelines[other].sections()}
            assert recorded == (other in running)
    assert section("a") is section("b"), "sections are off"
    assert folder is not None
    assert "STROBE_SPOOL" not in os.environ


def test_starting_a_timeline_twice_is_starting_it_once():
    timeline = Timeline().start().start()
    timeline.stop()
    assert section("a") is section("b"), "sections are off"
    with timeline.start():
        timeline.pause()
        timeline.start()
        with section("again"):
            pass
    assert paths(timeline) == [("again",)]
    assert section("a") is section("b"), "sections are off"


def test_threads_of_one_name_do_not_nest_into_each_other():
    began, ended, stopped = threading.Event(), threading.Event(), threading.Event()

    def outer():
        with section("outer"):
            began.set()
            ended.wait(60)
        stopped.wait(60)

    def inner():
        began.wait(60)
        with section("inner"):
            pass
        ended.set()
        stopped.wait(60)

    threads = [threading.Thread(target=work, name="worker") for work in (outer, inner)]
    with Timeline() as timeline:
        for thread in threads:
            thread.start()
        ended.wait(60)
        while len(timeline) < 2:
            time.sleep(0.001)
    stopped.set()
    for thread in threads:
        thread.join()
    assert sorted(paths(timeline)) == [("inner",), ("outer",)]
    assert {recorded.thread for recorded in timeline.sections()} == {"worker", "worker (2)"}


def test_the_next_owner_of_an_ended_thread_s_ident_gets_none_of_its_sections():
    def leave_section_open():
        with section("left open"):
            yield

    kept = leave_section_open()

    def first():
        next(kept)
        with section("first"):
            pass

    def second():
        with section("second"):
            kept.close()

    with Timeline() as timeline:
        for work in (first, second):
            thread = threading.Thread(target=work, name=work.__name__)
            thread.start()
            thread.join()
    found = {(recorded.path, recorded.thread) for recorded in timeline.sections()}
    assert found == {(("first",), "first"), (("second",), "second")}
    assert "a generator yields inside it" in timeline.unseen["left open"]


def test_coroutines_that_take_turns_do_not_nest_into_each_other():
    async def request(name: str, turns: int) -> None:
        with section(name):
            for _ in range(turns):
                with section(f"{name} computes"):
                    helper(name)
                await asyncio.sleep(0)

    def helper(name: str) -> None:
        with section(f"{name} helps"):
            pass

    async def both() -> None:
        await asyncio.gather(request("long", 3), request("short", 1))
        with section("last"):
            await request("inside", 1)

    with Timeline() as timeline, section("whole"):
        asyncio.run(both())
    assert sorted(set(paths(timeline))) == [
        ("whole",), ("whole", "last"), ("whole", "last", "inside"), ("whole", "last", "inside", "inside computes"),
        ("whole", "last", "inside", "inside computes", "inside helps"), ("whole", "long"),
        ("whole", "long", "long computes"), ("whole", "long", "long computes", "long helps"), ("whole", "short"),
        ("whole", "short", "short computes"), ("whole", "short", "short computes", "short helps"),
    ]  # fmt: skip
    order = [recorded.path for recorded in timeline.sections()]
    assert all(path[:-1] in order[:at] for at, path in enumerate(order) if len(path) > 1)


def test_a_section_that_a_generator_yields_in_is_said_to_be_unseen_and_others_of_it_are_timed():
    class Source:
        def frames(self):
            with section("read"):
                for number in range(2):
                    with section("decode"):
                        pass
                    yield number
            with section("end"):
                yield from ()
            with section("close"):
                pass

    source = Source()
    with Timeline() as timeline, section("whole"), attach([Probe.method("", "frames", "probe")], source):
        next(source.frames())  # it is given up
        for _ in source.frames():
            with section("compute"):
                pass
    turn = [("whole", "decode"), ("whole", "compute")]
    assert paths(timeline) == [("whole",), turn[0], *turn, *turn, ("whole", "close")]
    assert timeline.unseen.keys() >= {"read", "end", "probe"}
    with pytest.raises(TypeError, match="between its yields"):
        timed(Source.frames)


def test_a_generator_that_is_a_context_manager_holds_the_block_it_is_for():
    @contextlib.contextmanager
    def phase():
        with section("phase"):
            yield

    def steps():
        with phase():
            with section("step"):
                pass
            yield

    with Timeline() as timeline:
        with phase(), section("block"):
            pass
        for _ in steps():
            with section("body"):
                pass
    assert paths(timeline) == [("phase",), ("phase", "block"), ("step",), ("body",)]
    assert "phase" in timeline.unseen


def test_a_coroutine_function_is_timed_until_it_is_done():
    @timed("waits")
    async def waits() -> int:
        await asyncio.sleep(0.01)
        return 3

    class Server:
        async def answer(self) -> int:
            return await waits()

    server = Server()
    with Timeline() as timeline, attach([Probe.method("", "answer", "probe")], server):
        assert asyncio.run(server.answer()) == 3
    assert paths(timeline) == [("probe",), ("probe", "waits")]
    assert all(recorded.ms >= 9 for recorded in timeline.sections())


def test_inference_mode_and_autograd_hooks():
    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, *grad_outputs):
            with section("backward of mine"):
                return grad_outputs[0] * 2

    with Timeline() as timeline:
        with torch.inference_mode(), section("inference"):
            torch.ones(2) + 1
        x = torch.ones(2, requires_grad=True)
        with section("backward"):
            Times.apply(x).sum().backward()
    names = [s.name for s in timeline.sections()]
    assert names == ["inference", "backward", "backward of mine"]


def test_a_compiled_region_runs_whole_and_its_sections_are_named_as_unseen():
    torch.compiler.reset()

    def region(x):
        with section("inside the graph"):
            return x + 1

    compiled = torch.compile(region, backend="eager", fullgraph=True)
    with Timeline() as timeline, section("around the graph"):
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert paths(timeline) == [("around the graph",)]
    assert "torch.compile" in timeline.unseen["inside the graph"]
    assert compiled(torch.ones(2)).tolist() == [2, 2]  # off again


class Slow(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        with section("decode"), section("seek"):
            return index


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_sections_of_loader_workers_come_home(start):
    with Timeline() as timeline:
        loader = DataLoader(Slow(), batch_size=2, num_workers=2, multiprocessing_context=start)
        with section("epoch"):
            assert sum(len(batch) for batch in loader) == 8
        del loader
    found = timeline.sections()
    decodes = [s for s in found if s.path == ("decode",)]
    assert len(decodes) == 8
    assert len([s for s in found if s.path == ("decode", "seek")]) == 8
    assert len({s.thread for s in decodes}) == 2
    assert all(s.thread.startswith("worker ") for s in decodes)
    epoch = next(s for s in found if s.name == "epoch")
    assert epoch.thread == "main"
    assert all(epoch.start_ns <= s.start_ns <= s.end_ns <= epoch.end_ns for s in decodes)


def _record_and_die(folder):
    with section("before death"):
        pass
    while not any(file.stat().st_size for file in folder.glob("*.jsonl")):  # written out now and then
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow("a worker that is killed")
def test_a_killed_worker_is_named_and_what_it_wrote_is_kept():
    with Timeline() as timeline:
        worker = multiprocessing.get_context("fork").Process(target=_record_and_die, args=(timeline._spool.folder,))
        worker.start()
        worker.join()
    assert [s.name for s in timeline.sections()] == ["before death"]
    assert [name for name in timeline.unseen if name == f"worker {worker.pid}"]


def test_sections_recorded_before_a_fork_are_not_recorded_twice():
    with Timeline() as timeline:
        with section("parent's"):
            pass
        worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0,))
        worker.start()
        worker.join()
    assert [s.name for s in timeline.sections()] == ["parent's"]


@pytest.mark.gpu
def test_device_time_covers_the_kernels_and_a_captured_section_is_unseen():
    a = torch.randn(4096, 4096, device="cuda")
    with Timeline("cuda") as timeline:
        for _ in range(3):
            with section("product"):
                a @ a
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), section("captured"):
            a + 1
        graph.replay()
    products = [s for s in timeline.sections() if s.name == "product"]
    assert len(products) == 3
    assert products[-1].device_ms > products[-1].host_ms  # launched in microseconds, computed in milliseconds
    assert "CUDA graph" in timeline.unseen["captured"]
