"""Text on the screen: headings are bold there, and plain in a pipe."""

from __future__ import annotations

import shutil
import sys

import typer

from springtide.compiler.explain import WIDTH


def width() -> int:
    """Return the width to write in: the screen's, and a fixed one in a pipe."""
    return min(WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH


def show(text: str) -> None:
    """Print text whose paragraphs begin with a heading."""
    for i, paragraph in enumerate(text.split("\n\n")):
        first, *rest = paragraph.split("\n")
        typer.echo("\n" * (i > 0) + (first if first.startswith("subquery ") else typer.style(first, bold=True)))
        for line in rest:
            typer.echo(line)
