"""What the site needs beyond Sphinx: diagrams that are drawn already, links that lead out of this folder, the commands' help."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import click
import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.logging import getLogger

import springtide
from springtide.cli.app import app as springtide_app

DOCS = Path(__file__).parents[1]
DIAGRAMS = DOCS / "pictures" / "diagrams"
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_ELSEWHERE = {
    "README.md": "index.md",
    "../README.md": "index.md",
    "../CHANGELOG.md": "changelog.md",
    "../examples": "examples.md",
    "../benchmarks/results": "figures.md",
    "decisions": "decisions/index.md",
}
"""What pages of the repository link to, and which page of the site has it."""


def diagram_of(source: str) -> Path:
    """Where the picture of a Mermaid diagram is: another source has another name."""
    return DIAGRAMS / f"{hashlib.sha256(source.strip().encode()).hexdigest()[:16]}.svg"


class Mermaid(SphinxDirective):
    """A diagram, as the picture that was drawn of it: the page loads nothing and draws nothing."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Make the image."""
        source = "\n".join(self.content)
        picture = diagram_of(source)
        if not picture.exists():
            getLogger(__name__).warning(
                "there is no picture of this diagram: run `python -m scripts.diagrams`", location=self.get_location()
            )
        said = "; ".join(re.sub(r"<br/?>", " ", text) for text in re.findall(r'"([^"]+)"', source))
        depth = "../" * self.env.docname.count("/")
        return [
            nodes.image(uri=f"{depth}pictures/diagrams/{picture.name}", alt=f"A diagram: {said}", classes=["diagram"])
        ]


class Commands(SphinxDirective):
    """The help of every command of `springtide`."""

    def run(self) -> list[nodes.Node]:
        """Make a section for each command."""
        lines: list[str] = []
        group = typer.main.get_command(springtide_app)
        for name, command in sorted(group.commands.items()):  # type: ignore[attr-defined]
            below = getattr(command, "commands", None)
            if command.hidden:
                continue
            for path, one in [(f"{name} {n}", c) for n, c in sorted(below.items())] if below else [(name, command)]:
                lines += _help(f"springtide {path}", one)
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class OtherNames(SphinxDirective):
    """The public names that no page of the reference has a place for."""

    def run(self) -> list[nodes.Node]:
        """Document each."""
        pages = "".join(path.read_text("utf-8") for path in (DOCS / "reference").glob("*.md"))
        lines = ["```{eval-rst}"]
        for name in springtide.__all__:
            if not re.search(rf":: springtide\.{name}\b", pages):
                kind = "class" if isinstance(getattr(springtide, name), type) else "function"
                lines += [f".. auto{kind}:: springtide.{name}", ""]
        return self.parse_text_to_nodes("\n".join([*lines, "```"]))


def _help(path: str, command: Any) -> list[str]:
    context = click.Context(command, info_name=path)
    usage = re.sub(r"\{(\w+)\}", r"\1", " ".join([path, *command.collect_usage_pieces(context)]))
    lines = [f"## {path}", "", "```text", usage, "```", "", *(command.help or "").replace("\b", "").splitlines(), ""]
    rows = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    if rows:
        lines += ["| | |", "|---|---|"]
    for parameter in rows:
        named = ", ".join(f"`{o}`" for o in [*parameter.opts, *parameter.secondary_opts])
        name = named if parameter.param_type_name == "option" else f"`{parameter.metavar or parameter.name.upper()}`"
        said = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {name.replace('|', chr(92) + '|')} | {said} |")
    return [*lines, ""]


def complete(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give pages that the front page does not name a place at its end."""
    if docname == "index":
        named = set(re.findall(r"^([\w/-]+)$", source[0], flags=re.MULTILINE)) | {"index", "README"}
        others = [p.stem for p in sorted(DOCS.glob("*.md")) if p.stem not in named]
        others += [f"howto/{p.stem}" for p in sorted(DOCS.glob("howto/*.md")) if f"howto/{p.stem}" not in named]
        if others:
            source[0] += "\n".join(["```{toctree}", ":caption: More", ":hidden:", "", *others, "```", ""])


def lead(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links out of this folder lead to the page of the site that has it; other files come along as downloads."""
    here = (DOCS / docname).parent

    def other(match: re.Match[str]) -> str:
        path, _, anchor = match[1].partition("#")
        name = os.path.relpath(here / path, DOCS) if path else ""
        if name not in _ELSEWHERE:
            return match[0]
        return f"]({os.path.relpath(DOCS / _ELSEWHERE[name], here)}{'#' + anchor if anchor else ''})"

    text, last = [], 0
    for fence in _FENCE.finditer(source[0]):
        text += [re.sub(r"\]\((?!https?:)([^)\s]+)\)", other, source[0][last : fence.start()]), fence[0]]
        last = fence.end()
    source[0] = "".join([*text, re.sub(r"\]\((?!https?:)([^)\s]+)\)", other, source[0][last:])])


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx."""
    app.add_directive("mermaid", Mermaid)
    app.add_directive("commands", Commands)
    app.add_directive("other-names", OtherNames)
    app.connect("source-read", complete)
    app.connect("source-read", lead)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
