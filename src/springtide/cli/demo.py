"""`springtide demo`: a first query, run in front of you."""

from __future__ import annotations

import ast
from pathlib import Path

import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table

import springtide
from springtide.cli.errors import CommandError
from springtide.cli.load import load_module
from springtide.compiler.tables import columns

_SHOWN = 10


def demo() -> None:
    """Run the heavy-callers example and show what comes out."""
    console = Console(highlight=False)
    console.print("[bold]heavy-callers[/bold] on the sequential reference; the Spark engine comes next\n")
    file = _example("heavy_callers.py")
    query = load_module(file).query
    console.print(_code(file, "calls", "query") + "\n", markup=False)
    wide = max(map(len, query.steps))
    with console.status("running"):
        result = query.run_reference(
            observe=lambda step, rows, seconds: console.print(f"  {step:{wide}}  {rows:6,} rows in  {seconds:5.2f} s")
        )
    rows = result.rows()
    console.print(f"\n{rows.height:,} rows out, the last {min(_SHOWN, rows.height)} of them:")
    console.print(_table(rows.tail(_SHOWN).select("window_start", "window_end", "src", "avg", "calls")))
    console.print("[bold]Next[/bold]")
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    for line in columns(
        [
            (f"springtide explain {shown}", "what this query will run as"),
            (f"{shown.parent}/", "short programs to begin with"),
            ("docs/semantics.md", "which rows a query gives"),
        ]
    ):
        console.print(f"  {line}", soft_wrap=True)


def _example(name: str) -> Path:
    """Find an example: in the installed package, or in the checkout around it."""
    package = Path(springtide.__file__).parent
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / name).is_file():
            return folder / name
    raise CommandError("the examples are not installed; run this in a checkout of Springtide")


def _code(file: Path, first: str, last: str) -> str:
    """Cut the lines from the assignment of `first` to that of `last` out of a file."""
    text = file.read_text("utf-8")
    at = {
        target.id: statement
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    return "\n".join(text.splitlines()[at[first].lineno - 1 : at[last].end_lineno])


def _table(rows: pl.DataFrame) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for name, dtype in rows.schema.items():
        table.add_column(name, justify="right" if dtype.is_numeric() else "left")
    for row in rows.iter_rows():
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:%H:%M}" if hasattr(value, "hour") else str(value)
