"""`springtide demo`: a query on Spark whose instances follow a load that triples and falls again, over generated calls."""

from __future__ import annotations

import inspect
import math
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer
from rich.console import Console

import springtide as st
from springtide.charts import chart
from springtide.cli.formatting import extra, size
from springtide.cli.launch import RunEnd, RunOptions, launch
from springtide.cli.run import summary
from springtide.cli.sessions import SessionOptions
from springtide.cli.tables import table_of
from springtide.cli.ui import is_installed
from springtide.compiler.tables import columns
from springtide.elastic.decisions import Decision, decisions_of
from springtide.elastic.snapshot import Snapshot
from springtide.query.errors import SpringtideError
from springtide.query.plurals import plural
from springtide.state.history import History

ANSWER = 0.000_75
"""Seconds that the contracts' service takes for one answer."""
_LOW, _HIGH = 10_000, 30_000
"""Calls per second, at the beginning and at the end, and between them."""
_WAVE = 0.75
"""The share of the time in which the load rises and falls; after that it stays low, so that one can watch instances go."""
_MEAN = (_LOW + _HIGH) // 2
_STREAMS = 2
_PER_SECOND = 100
"""Calls in a second of event time of each stream: at the mean rate it goes a hundred times faster than the clock."""
_BEGIN = datetime(2024, 5, 1)
_CALLERS = 2_000
_HOT = ("600000170", "600001210")
"""First the one and then the other makes one call in eight."""
_SLOTS = 8
_SHOWN = 5


def contracts(callers: pl.Series) -> pl.Series:
    """Ask a slow service how long the calls of these callers may be."""
    time.sleep(len(callers) * ANSWER)  # a made-up service, which answers one question after the other
    return callers.str.slice(-1).cast(pl.Float64) * 60 + 60


def heavy_callers(calls: st.Stream, sink: Any) -> st.Query:
    """Who talks longer per call than the contract says, on average over the last twenty calls?"""
    heavy = (
        calls.map(duration=(pl.col("end") - pl.col("start")).dt.total_seconds())
        .aggregate(by="src", window=st.last_n(20, every=5), avg=st.mean("duration"), name="heavy")
        .map(limit=pl.col("src").map_batches(contracts, return_dtype=pl.Float64))
        .filter(pl.col("avg") > pl.col("limit"))
    )
    return st.Query("heavy-callers", heavy.to(sink))


@dataclass(frozen=True)
class HotCallers:
    """Call records, one in eight of which is by the same caller: up to a position by the first, then by the second."""

    records: Any
    jump: int

    def __call__(self, stream: int, first: int, count: int) -> pl.DataFrame:
        """Make `count` records of a physical stream, from position `first` on."""
        place = np.arange(first, first + count)
        hot = pl.Series(np.where(place < self.jump, *_HOT))
        made: pl.DataFrame = self.records(stream, first, count)
        return made.with_columns(src=pl.when(pl.Series(place % 8 == 0)).then(hot).otherwise(pl.col("src")))


def source(seconds: int) -> st.Stream:
    """Make calls for some seconds: few, three times as many, few."""
    records = st.call_records(callers=_CALLERS, per_second=_PER_SECOND, begin=_BEGIN)
    swing, wave = (_HIGH - _LOW) / 2, _WAVE * 2 * seconds
    rates = [_MEAN - swing * math.cos(2 * math.pi * min(1.0, (i + 0.5) / wave)) for i in range(2 * seconds)]
    total = round(sum(rates) / 2)
    generated = st.generate(
        HotCallers(records, total // _STREAMS // 2),
        rate=st.trace(rates, every="500ms"),
        streams=_STREAMS,
        total=total,
        max_backlog=15 * _MEAN,
    )
    return st.source("calls", generated, ts="ts")


def demo(
    seconds: Annotated[int, typer.Option(min=2, help="How many seconds calls come in.")] = 60,
    plain: Annotated[bool, typer.Option("--plain", help="Print lines instead of the live view.")] = False,
) -> None:
    """Run a query on Spark, over generated calls, for about a minute: its instances follow the load."""
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="springtide-demo-"))
    ckpt, out = folder / "ckpt", folder / "out"
    query = heavy_callers(source(seconds), st.parquet_sink(out))
    for part in (contracts, heavy_callers):
        console.print(inspect.getsource(part), markup=False, soft_wrap=True)
    console.print(
        f"Calls come in for {plural(seconds, 'second')}: {_LOW:,} per second, soon {_HIGH:,}, and {_LOW:,} at the end. One call in eight is by "
        "the same caller, who changes half-way. The step [bold]heavy[/bold] has 1 to "
        f"{_SLOTS} instances, as many as keep them busy for 60 % of the time; [bold]calls[/bold] always has 2.\n"
        f"The service is made up: it sleeps for {ANSWER * 1000:.2f} ms per answer. So this query waits more than it computes, and {_SLOTS} "
        "instances make sense on a small machine. One that computes all the time would need as many cores.\n",
        soft_wrap=True,
    )
    elastic = st.Elastic(
        max=_SLOTS,
        limits={"calls": (2, 2)},
        policy=st.Threshold(drain=20),
        balancing=st.Balancing(uit=0.15),
        every=2,
        grace=4,
    )
    program = _program()
    tips = [
        ("try", f"{program} history {ckpt}"),
        ("", f"{program} pause {ckpt}"),
        ("", f"{program} scale {ckpt} heavy 5"),
    ]
    options = RunOptions(
        session=SessionOptions(f"local[{_SLOTS},4]"),
        checkpoint=str(ckpt),
        instances=("calls=2", "heavy=3"),
        trigger="1s",
        rows_per_epoch=_HIGH,
        plain=plain,
        elastic=elastic,
        ui=is_installed(),
    )
    finished = launch(query, options, console, tips)
    summary(finished, console)
    _elasticity(finished, folder, console)
    _longest(out, console)
    console.print("\n[bold]Next[/bold]")
    for line in (
        f"{program} ui {ckpt}",
        f"{program} history {ckpt}",
        f"{program} status {ckpt}",
        f"{program} run FILE --elastic  (examples/ has short programs to begin with)",
    ):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _elasticity(finished: RunEnd, folder: Path, console: Console) -> None:
    """Sum up the decisions, and draw the run."""
    history = History(Path(finished.checkpoint))
    decisions = decisions_of(history.read("decisions"))
    snapshots = [Snapshot.from_json(record) for record in history.read("snapshots")]
    console.print("\n[bold]Elasticity[/bold]")
    for line in columns([*told(decisions), *_drawn(snapshots, decisions, folder)]):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def told(decisions: list[Decision]) -> list[tuple[str, str]]:
    """Return a few lines about what was decided."""
    scaled = [d.instruction for d in decisions if d.instruction.kind == "scale"]
    others = len(decisions) - len(scaled)
    lines = [("decisions", f"{len(scaled)} × another number of instances, {others} × the same, other buckets")]
    if scaled:
        steps = [scaled[0].before.instances, *(told.after.instances for told in scaled)]
        lines.append(("instances", " → ".join(map(str, steps))))
    done = [d.outcome for d in decisions if d.outcome]
    if done:
        costs = [o.extra_seconds for o in done]
        moved = sum(o.bytes_moved for o in done)
        lines.append(
            ("extra time", f"{extra(median(costs))} in the median of the switching epochs, {extra(max(costs))} at most")
        )
        lines.append(("state", f"{size(moved)} changed owners by name: nothing was copied"))
    return lines


def _drawn(snapshots: list[Snapshot], decisions: list[Decision], folder: Path) -> list[tuple[str, str]]:
    """Draw the run; without matplotlib say how to get it."""
    if not snapshots:
        return []
    calls, half = 0, sum(s.rows for s in snapshots) / 2
    marks = []
    for snapshot in snapshots:
        calls += snapshot.rows
        if calls >= half:
            marks = [(snapshot.time, "another caller is hot")]
            break
    try:
        picture = chart(
            snapshots,
            folder / "chart.png",
            title="heavy-callers: instances follow a load that triples",
            subqueries=["heavy"],
            decisions=decisions,
            marks=marks,
        )
    except SpringtideError as error:
        return [("chart", str(error))]
    return [("chart", str(picture))]


def _longest(out: Path, console: Console) -> None:
    """Show the callers that are farthest over their limits in the last rows."""
    if not any(out.glob("*.parquet")):
        return
    rows = pl.scan_parquet(out).group_by("src").last().collect()
    if rows.height:
        console.print(f"\n[bold]The farthest over the limit, of {plural(rows.height, 'heavy caller')}[/bold]")
        shown = rows.with_columns(over=pl.col("avg") - pl.col("limit")).sort("over", "src", descending=[True, False])
        for line in table_of(shown.head(_SHOWN).select("src", pl.col("avg").round(1), "limit")):
            console.print(f"  {line}", markup=False, soft_wrap=True)


def _program() -> str:
    """Return how a person calls this program from here."""
    if shutil.which("springtide"):
        return "springtide"
    beside = Path(sys.executable).with_name("springtide")
    if not beside.exists():
        return "python -m springtide.cli"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)
