"""Records that packages of others wrote before there were capabilities: read for one version, with a warning each."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest

from strobe.core.families.capabilities import InputFacts, LiveFields
from strobe.core.families.family import Family
from strobe.core.families.sampling import Graphs, UnreadHead, Views


def written(**arguments: object) -> Family:
    """A record by arguments of the former form."""
    return Family("small flow", ("small_flow",), **arguments)  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_former_arguments_become_capabilities() -> None:
    views = Views("model", "max_views")
    family = written(steps="num_steps", live=("guidance",), views=views, unread_head="head", fills_cameras=True)
    assert family.get(LiveFields) == LiveFields(steps="num_steps", live=("guidance",))
    assert family.get(Views) is views
    assert family.get(UnreadHead) == UnreadHead("head")
    assert InputFacts.of(family).fills_cameras
    assert family.get(Graphs) is None


def test_former_arguments_of_a_record_are_named_in_one_warning() -> None:
    with pytest.warns(DeprecationWarning, match="capabilities") as caught:
        written(steps="num_steps", unread_head="head")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert all(word in str(caught[0].message) for word in ("steps", "unread_head", "LiveFields", "UnreadHead"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_record_that_is_copied_without_a_former_argument_does_not_have_it() -> None:
    full = Family("a", ("a",), capabilities=(Views("model", "most"), LiveFields(steps="n", every_step="m")))
    less = replace(full, views=None, steps="")  # pyright: ignore[reportCallIssue]
    assert less.get(Views) is None
    assert less.get(LiveFields) == LiveFields(every_step="m")


def test_an_argument_that_never_was_is_refused_and_a_present_record_warns_of_nothing() -> None:
    with pytest.raises(TypeError, match="speed"):
        written(speed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written(costly=("encoder",))


def test_former_places_of_a_record_s_arguments_are_found() -> None:
    from strobe.core.families import registry
    from strobe.core.families.family import Arm, Flow  # pyright: ignore[reportAttributeAccessIssue]

    assert Arm(most=3) == InputFacts(arm=Arm(most=3)).arm
    assert Flow.__module__ == "strobe.core.families.sampling"
    assert registry.Anatomy is Family
    assert registry.blocks("layers", "layer").level == 2
