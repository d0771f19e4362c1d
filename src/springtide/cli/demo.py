"""`springtide demo`: heavy callers on Spark, over a stream of generated calls."""

from __future__ import annotations

import inspect
import shutil
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console

import springtide as st
from springtide.cli.figures import plural
from springtide.cli.launch import Wish, launch
from springtide.cli.run import summary
from springtide.cli.tables import table_of

_RATE = 100_000
_STREAMS = 2
_PER_SECOND = 500
"""Calls in a second of event time of each stream: it goes a hundred times faster than the clock."""
_BEGIN = datetime(2024, 5, 1)
_SHOWN = 5


def heavy_callers(calls: st.Stream, sink: Any) -> st.Query:
    """Who talks for more than ten minutes per call, on average over the last hour?"""
    heavy = (
        calls.map(duration=(pl.col("end") - pl.col("start")).dt.total_seconds())
        .aggregate(
            by="src",
            window=st.sliding("1h", every="1m"),
            avg=st.mean("duration"),
            calls=st.count(),
            name="heavy",
        )
        .filter(pl.col("avg") > 600)
    )
    return st.Query("heavy-callers", heavy.to(sink))


def demo(
    seconds: Annotated[int, typer.Option(min=1, help="How long calls come in.")] = 60,
    plain: Annotated[bool, typer.Option("--plain", help="Lines, and no live view.")] = False,
) -> None:
    """Run a query on Spark, over generated calls, for about a minute."""
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="springtide-demo-"))
    ckpt, out = folder / "ckpt", folder / "out"
    records = st.generate(
        st.call_records(callers=10_000, per_second=_PER_SECOND, begin=_BEGIN),
        rate=st.sine(_RATE, _RATE / 2, "20s"),
        streams=_STREAMS,
        total=_RATE * seconds,
        max_backlog=4 * _RATE,
    )
    query = heavy_callers(st.source("calls", records, ts="ts"), st.parquet_sink(out))
    console.print(inspect.getsource(heavy_callers), markup=False, soft_wrap=True)
    console.print(
        f"About {_RATE:,} call records come in each second, for {plural(seconds, 'second')}; in their own time that is "
        f"{_RATE // (_STREAMS * _PER_SECOND)} times as long, so that every second or so a window of one hour closes. "
        "Spark runs two instances of each part of the query.\n"
    )
    program = _program()
    tips = [("try", f"{program} scale {ckpt} heavy 3"), ("", f"{program} status {ckpt}")]
    outcome = launch(query, Wish(master="local[2,4]", checkpoint=ckpt, instances=("2",), plain=plain), console, tips)
    summary(query, outcome, console)
    _heaviest(out, seconds, console)
    console.print("\n[bold]Next[/bold]")
    for line in (f"{program} status {ckpt}", f"{program} run FILE  (examples/ has short programs to begin with)"):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _heaviest(out: Path, seconds: int, console: Console) -> None:
    """Show the callers with the longest calls in the last window that ended while calls came in."""
    if not any(out.glob("*.parquet")):
        return
    minutes = _RATE * seconds // (_STREAMS * _PER_SECOND) // 60
    end = _BEGIN + timedelta(minutes=minutes)
    rows = pl.scan_parquet(out).filter(pl.col("window_end").dt.replace_time_zone(None) == end).collect()
    if rows.height:
        console.print(
            f"\n[bold]The heaviest of {plural(rows.height, 'heavy caller')} in the hour up to {end:%H:%M}[/bold]"
        )
        for line in table_of(
            rows.sort("avg", "src", descending=[True, False])
            .head(_SHOWN)
            .select("src", pl.col("avg").round(1), "calls")
        ):
            console.print(f"  {line}", markup=False, soft_wrap=True)


def _program() -> str:
    """Say how a person calls this program from here."""
    if shutil.which("springtide"):
        return "springtide"
    beside = Path(sys.executable).with_name("springtide")
    if not beside.exists():
        return "python -m springtide.cli"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)
