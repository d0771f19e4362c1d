"""A picture of a run: load, instances, utilisation and latency over time, from its snapshots.

It needs matplotlib, which is not among what every driver must carry: `pip install springtide[plots]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from springtide.elastic.decisions import Decision
from springtide.elastic.snapshot import Snapshot
from springtide.elastic.summaries import merged
from springtide.query.errors import SpringtideError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#cb912f")
INK, PALE = "#37352f", "#b8b5ae"
STYLE: Any = {
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#ecebe8",
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "springtide",
    "svg.fonttype": "none",
}
"""What all pictures look like: settings of matplotlib."""
_EVERY = 1.0
"""Seconds over which load, backlog and utilisation are summed up."""

Mark = tuple[float, str]
"""A moment of the snapshots' clock, and what happened."""


def chart(
    snapshots: Sequence[Snapshot],
    path: str | Path,
    *,
    title: str = "",
    subqueries: Sequence[str] | None = None,
    decisions: Iterable[Decision] = (),
    marks: Sequence[Mark] = (),
) -> Path:
    """Draw a run and write the picture; the end of the file's name says as what (.svg, .png, .pdf).

    Load, backlog and utilisation are summed up by the second, latency is shown for each epoch. Only the named subqueries are drawn,
    if any are named. Decisions that leave the number of instances alone are shown as points, and marks as lines with a text.
    """
    if not snapshots:
        raise SpringtideError("there is nothing to draw: no epoch was measured")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise SpringtideError(
            "a chart is drawn with matplotlib, which is not installed; pip install 'springtide[plots]' installs it"
        ) from None
    names = [n for n in snapshots[-1].subqueries if subqueries is None or n in subqueries]
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    begin = snapshots[0].time - snapshots[0].seconds
    summaries = [(r.time - begin, r) for r in _summed(snapshots)]
    epochs = [(s.time - begin, s) for s in snapshots]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 8), layout="constrained")
        load, instances, used, waits = figure.subplots(4, 1, sharex=True)
        _load(load, summaries)
        _instances(instances, epochs, names, colours)
        _utilisation(used, summaries, names, colours)
        _balanced(used, [d.at - begin for d in decisions if d.instruction.kind != "scale"])
        _latency(waits, epochs)
        waits.set_xlabel("seconds")
        waits.set_xlim(0, epochs[-1][0] or 1.0)
        _marks((load, instances, used, waits), [(at - begin, text) for at, text in marks])
        for axes in (load, instances, used, waits):
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, ncols=4)
        if title:
            figure.suptitle(title, fontsize=11, fontweight="bold")
        file = Path(path)
        # A picture of the same run is the same file: no date in it.
        figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)
    return file


def _summed(snapshots: Sequence[Snapshot]) -> Iterator[Snapshot]:
    """Sum up snapshots of the same bucket maps, a second at a time; a change of maps begins a new one."""
    gathered: list[Snapshot] = []
    for snapshot in snapshots:
        if gathered and (_maps(gathered[-1]) != _maps(snapshot) or sum(s.period for s in gathered) >= _EVERY):
            yield merged(gathered)
            gathered = []
        gathered.append(snapshot)
    yield merged(gathered)


def _maps(snapshot: Snapshot) -> dict[str, int]:
    return {name: load.map.version for name, load in snapshot.subqueries.items()}


def _load(axes: Axes, summaries: Sequence[tuple[float, Snapshot]]) -> None:
    times = [t for t, _ in summaries]
    read = [r.rows / r.period if r.period else 0.0 for _, r in summaries]
    axes.plot(times, [r.rate for _, r in summaries], color=INK, linewidth=1.6, label="arriving")
    axes.plot(times, read, color=COLOURS[0], linewidth=1.0, linestyle="--", label="read")
    axes.set_ylabel("rows per second")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(_thousands)
    if any(r.backlog for _, r in summaries):
        _backlog(axes, times, [r.backlog for _, r in summaries])


def _backlog(axes: Axes, times: Sequence[float], rows: Sequence[int]) -> None:
    """Draw the backlog behind the rates, on a scale of its own."""
    right = axes.twinx()
    axes.fill_between([], [], color=PALE, alpha=0.35, linewidth=0, label="backlog (right)")
    right.fill_between(times, rows, color=PALE, alpha=0.35, linewidth=0)
    right.set_ylabel("rows")
    right.set_ylim(bottom=0)
    right.yaxis.set_major_formatter(_thousands)
    right.grid(visible=False)
    right.spines["right"].set_visible(True)
    axes.set_zorder(right.get_zorder() + 1)
    axes.patch.set_visible(False)


def _instances(
    axes: Axes, epochs: Sequence[tuple[float, Snapshot]], names: Sequence[str], colours: dict[str, str]
) -> None:
    for name in names:
        found = [(t, s.subqueries[name].instances) for t, s in epochs if name in s.subqueries]
        axes.step(*zip(*found, strict=True), where="pre", color=colours[name], linewidth=1.8, label=name)
    axes.set_ylabel("instances")
    axes.set_ylim(0, 1 + max(s.subqueries[n].instances for _, s in epochs for n in names if n in s.subqueries))
    axes.locator_params(axis="y", integer=True)


def _utilisation(
    axes: Axes, summaries: Sequence[tuple[float, Snapshot]], names: Sequence[str], colours: dict[str, str]
) -> None:
    """Draw the average, and from the least to the most busy instance."""
    for name in names:
        found = [(t, r) for t, r in summaries if name in r.subqueries]
        times = [t for t, _ in found]
        every = [r.utilisation(name) for _, r in found]
        lowest, highest = [min(u, default=0.0) for u in every], [max(u, default=0.0) for u in every]
        axes.fill_between(times, lowest, highest, color=colours[name], alpha=0.15, linewidth=0)
        axes.plot(times, [r.mean_utilisation(name) for _, r in found], color=colours[name], linewidth=1.6, label=name)
    axes.set_ylabel("utilisation")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")


def _balanced(axes: Axes, times: Sequence[float]) -> None:
    if times:
        level = [0.02] * len(times)
        place: Any = axes.get_xaxis_transform()
        axes.plot(times, level, "^", color=INK, markersize=5, transform=place, label="buckets moved", clip_on=False)


def _latency(axes: Axes, epochs: Sequence[tuple[float, Snapshot]]) -> None:
    known = [(t, s.latency) for t, s in epochs if s.latency]
    times = [t for t, _ in known]
    axes.plot(times, [w.p95 for _, w in known], color=COLOURS[1], linewidth=1.0, label="p95")
    axes.plot(times, [w.p50 for _, w in known], color=COLOURS[0], linewidth=1.2, label="p50")
    axes.set_ylabel("latency, seconds")
    axes.set_ylim(bottom=0)


def _marks(panels: Sequence[Axes], marks: Sequence[Mark]) -> None:
    for at, text in marks:
        for axes in panels:
            axes.axvline(at, color=PALE, linewidth=1.0, linestyle=":")
        place: Any = panels[0].get_xaxis_transform()
        panels[0].text(at, 0.03, f" {text}", transform=place, fontsize=8, va="bottom")


def _thousands(number: float, _: Any) -> str:
    return f"{number / 1000:,.0f} k" if number >= 1000 else f"{number:.0f}"
