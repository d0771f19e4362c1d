"""Runs commands, and writes small files with queries in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner, Result

from springtide.cli.app import app

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """`run("explain", "file.py")` gives the exit code, stdout and stderr."""
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments], prog_name="springtide")


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """Write a program that has `x`, a source of numbers `n`, and `out`, a sink, and then these lines."""

    def write(lines: str, name: str = "program.py") -> Path:
        begin = """\
        import polars as pl
        import springtide as st
        out = st.memory_sink()
        x = st.source("x", st.memory(schema={"n": pl.Int64, "k": pl.String, "ts": st.TIME}), ts="ts")
        """
        path = tmp_path / name
        path.write_text(dedent(begin) + dedent(lines), "utf-8")
        return path

    return write
