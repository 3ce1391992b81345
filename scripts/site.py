"""Pages that MkDocs is given beside docs/: the front page, the plug-ins' pages, the reference, and the reports.

`mkdocs.yml` names this file as a hook. Links are written for a reader of the repository, where README.md stands above
docs/; here they are turned to the same pages on the site. Reports come from the examples' result.json at the end of a
build, in the place where their Markdown's page points to.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))  # so that `reference` is found however MkDocs loaded this file

import reference  # noqa: E402

# What stands outside docs/ in the repository → its place on the site.
OUTSIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"} | {
    str(path.relative_to(ROOT)): str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("packages/*/README.md"))
}
FOR_DEVELOPERS = {"architecture.md", "benchmarks.md", "changelog.md", "contributing.md", "decisions.md", "style.md"}
_CODE = re.compile(r"<code>([^<]*)</code>")
# Its end would be cut: a column of text holds 80 characters.
_COMMAND = re.compile(r"<pre>(?=<span></span><code>\s*(?:strobe |lerobot-|make |uvx |pip |python |\.venv))")
_DASHED = re.compile(r"(?<!\S)(?=\S{1,44}(?!\S))\S*-\S*")
# lunr 2.3.9 takes two nodes of its words' tree for one where digits meet their numbers ("1" before node 12, "11" before
# node 2): it then looks up words that it does not have, and a search with "3" in it finds nothing at all.
_TOKEN_SET = """self.lunr.TokenSet.prototype.toString = function () {
  const edges = Object.keys(this.edges).sort();
  return (this._str ??= [+this.final, ...edges.map((label) => `${label}:${this.edges[label].id}`)].join(","));
};"""
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that docs/ does not hold."""
    for source, place in OUTSIDE.items():
        if (ROOT / source).exists():
            text = _move_links((ROOT / source).read_text(), Path(source), Path(place))
            files.append(File.generated(config, place, content=text))
    for place, text in reference.pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_config(config: Any) -> Any:
    """Put the reference's pages into the navigation, and under About what mkdocs.yml does not name."""
    sections = {name: pages for section in config.nav for name, pages in section.items()}
    sections["Reference"] += reference.navigation()
    named = set(_entry_pages(config.nav))
    sections["About"] += [path.name for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in named]
    return config


def _entry_pages(entry: Any) -> Iterator[str]:
    """The pages that an entry of the navigation names."""
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from _entry_pages(inner)


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Turn links that leave docs/, and say where a run's page with plots is."""
    place = Path(page.file.src_uri)
    if page.file.generated_by is None:
        markdown = _move_links(markdown, Path("docs") / place, place)
    if _is_report(place):
        title, _, rest = markdown.partition("\n")
        # In HTML, since the page is there only once the site is built.
        markdown = f'{title}\n\n<p><a href="../report.html">The page with plots</a></p>\n{rest}'
    page.meta["search"] = {"boost": _weight(place)}
    return markdown


def on_page_content(html: str, *, page: Any, config: Any, files: Files) -> str:
    """Keep flags and names in one piece, which a browser would break after their dashes; wrap commands, not tables."""
    html = _COMMAND.sub('<pre class="command">', html)
    return _CODE.sub(lambda code: f"<code>{_DASHED.sub(_whole, code[1])}</code>", html)


def on_post_build(config: Any) -> None:
    """Render each example's report from its result, and fix the search's worker."""
    for worker in Path(config.site_dir).glob("assets/javascripts/workers/search.*.js"):
        worker.write_text(f"{worker.read_text()}\n{_TOKEN_SET}\n")
    from strobe.core.kinds import page
    from strobe.core.runs import store

    logging.getLogger("mkdocs.strobe").info("rendering the examples' reports")
    for result in sorted((ROOT / "docs" / "examples").glob("*/result.json")):
        there = Path(config.site_dir) / "examples" / result.parent.name / "report.html"
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(page(store.load_answer(result), None, result.parent))


def _weight(place: Path) -> float:
    """Return a page's weight in the search: pages for users come before those for developers or full of figures."""
    if place.is_relative_to(f"{reference.WHERE}/commands"):
        return 1.5
    figures = place.parts[0] == "examples" or place == Path(reference.WHERE, "results.md")
    return 0.2 if figures or str(place) in FOR_DEVELOPERS else 1


def _whole(word: re.Match[str]) -> str:
    return f'<span class="whole">{word[0]}</span>'


def _is_report(place: Path) -> bool:
    return place.parts[0] == "examples" and place.name == "report.md"


def _move_links(text: str, source: Path, place: Path) -> str:
    """Return ``text`` of the repository's file ``source`` with its links as they must be at ``place`` on the site."""

    def turn_link(link: re.Match[str]) -> str:
        target = link[2]
        if "://" in target or target.startswith(("mailto:", "/")):
            return link[0]
        there = _normal(source.parent / target)
        if there.is_relative_to("docs"):
            on_site = there.relative_to("docs")
        elif str(there) in OUTSIDE:
            on_site = Path(OUTSIDE[str(there)])
        else:
            return link[0]
        return f"{link[1]}{_relative(on_site, place.parent)}{link[3]}"

    return _LINK.sub(turn_link, text)


def _normal(path: Path) -> Path:
    """``path`` without ``..``, from the repository's root."""
    return (ROOT / path).resolve().relative_to(ROOT) if (ROOT / path).resolve().is_relative_to(ROOT) else path


def _relative(path: Path, start: Path) -> str:
    return path.relative_to(start, walk_up=True).as_posix()
