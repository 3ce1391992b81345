"""The documentation as a site: it builds without a warning and without the network, with its reference and reports."""

from __future__ import annotations

import html
import json
import re
import string
import tomllib
from pathlib import Path

import pytest
from support.checks.site_search import pages, search
from support.suite.places import ROOT
from support.suite.scripts import load_script

from strobe.core.kinds import study_rules
from strobe.core.slices import commands, kinds

pytestmark = pytest.mark.slow("the site is built, and read in a browser")

pytest.importorskip("mkdocs")
pytest.importorskip("material")

EXAMPLES = sorted(path.parent.name for path in ROOT.glob("docs/examples/*/result.json"))
reference = load_script("reference")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    # strict: a warning, such as one of a link that leads nowhere, raises.
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.mark.slow("the whole site")
def test_no_page_loads_anything_from_the_network(site: Path):
    loads = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^\"'> ]+")
    pages = [page for page in site.rglob("*.html") if page.name != "report.html"]  # its own tests have a browser
    assert len(pages) > 60
    assert {found for page in pages for found in loads.findall(page.read_text())} == set()
    assert not any(re.search(r"url\(\s*[\"']?https?:", sheet.read_text()) for sheet in site.rglob("*.css"))


def test_the_front_page_is_the_readme_with_links_within_the_site(site: Path):
    text = (site / "index.html").read_text()
    assert "Is it really faster?" in text
    assert 'href="guides/slow-policy/"' in text
    assert 'src="images/report.png"' in text
    assert '="docs/' not in text


@pytest.mark.slow("the whole site")
def test_every_example_has_a_page_with_plots_and_a_link_to_it(site: Path):
    assert EXAMPLES
    for name in EXAMPLES:
        assert "<!doctype html" in (site / "examples" / name / "report.html").read_text()[:200].lower()
        assert 'href="../report.html"' in (site / "examples" / name / "report" / "index.html").read_text()


def test_every_command_has_a_page_with_its_flags(site: Path):
    for name in commands():
        text = (site / "reference" / "commands" / name / "index.html").read_text()
        for flag in re.findall(r"^  (--[a-z_.]+)", reference.command_help(name), re.MULTILINE):
            assert flag in text, f"{name} {flag}"


def test_every_rule_names_its_findings_and_every_limit_that_is_used_has_a_default():
    from strobe.core.findings.thresholds import Thresholds

    for study in kinds():
        for rule in study_rules(study):
            names, limits = reference.find_rule_outputs(rule)
            assert names, f"{rule.__module__}.{rule.__name__}"
            assert "…" not in names, f"{rule.__module__}.{rule.__name__}"
            assert set(limits) <= set(Thresholds.__dataclass_fields__)


def test_every_limit_that_is_a_flag_is_read_by_a_rule():
    from strobe.core.findings.thresholds import Thresholds

    read = {limit for study in kinds() for rule in study_rules(study) for limit in reference.find_rule_outputs(rule)[1]}
    assert read == set(Thresholds.__dataclass_fields__)


def test_the_schema_knows_every_study(site: Path):
    schema = json.loads((site / "reference" / "result.schema.json").read_text())
    assert set(schema["discriminator"]["mapping"]) == set(kinds())


def test_the_readme_is_short_and_says_how_to_test():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert any(line.startswith("    make test ") for line in lines)


def test_what_a_markdown_character_means_is_escaped():
    assert reference.escape_markdown("a_b `c_d|e` <x> [y]") == r"a\_b `c_d\|e` &lt;x&gt; \[y\]"


QUESTIONS = tomllib.loads((Path(__file__).parent / "questions.toml").read_text())["question"]


def test_a_newcomers_question_is_answered_by_one_of_the_first_three_pages_that_the_search_finds(site: Path):
    assert len(QUESTIONS) >= 20
    found = search(site, [question["asked"] for question in QUESTIONS])
    first = {asked: pages(listed)[:3] for asked, listed in found.items()}
    assert {q["asked"]: first[q["asked"]] for q in QUESTIONS if q["page"] not in first[q["asked"]]} == {}


def test_the_page_that_answers_a_question_holds_the_words_of_the_answer(site: Path):
    for question in QUESTIONS:
        text = (site / question["page"] / "index.html").read_text().partition("<article")[2]
        shown = " ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split())
        assert [word for word in question["words"] if word not in shown] == [], question["asked"]


def test_a_digit_or_a_letter_in_a_question_does_not_end_the_search(site: Path):
    asked = [*map(str, range(130)), *string.ascii_lowercase]
    assert [word for word, listed in search(site, asked).items() if not listed] == []


def test_small_words_of_a_question_find_nothing_by_themselves(site: Path):
    found = search(site, ["Is it the recipe?", "recipe"])
    assert found["Is it the recipe?"] == found["recipe"]
    assert pages(found["recipe"])[0] == "recipes/"


def test_a_flags_own_heading_is_found_first(site: Path):
    headings = {
        "--target-hz": "reference/commands/optimize/#target_hz",
        "policy.size": "reference/commands/breakdown/#policy.size",
        "--json": "reference/commands/#json",
        "--held_out": "reference/commands/preflight/#held_out",
        "--fail-on-regression": "reference/commands/diff/#fail_on_regression",
        "--recipe_out": "reference/commands/optimize/#recipe_out",
        "--variant": "reference/commands/compare/#variant",
    }
    found = search(site, list(headings))
    assert {flag: listed[0][0] for flag, listed in found.items()} == headings


def test_the_list_for_assistants_stands_at_the_sites_root(site: Path):
    text = (site / "llms.txt").read_text()
    assert text.startswith("# Strobe\n")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        there = site / link
        assert there.is_file() or (there / "index.html").is_file(), link
