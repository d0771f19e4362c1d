"""The live view of a run: one screen, redrawn a few times a second."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from springtide.cli.formatting import clock, count, extra, rate, seconds, size, sparkline
from springtide.cli.progress import Progress, SubqueryProgress
from springtide.elastic.decisions import Decision

Event = tuple[float, str]
"""When, and what."""

DECISIONS = 5
"""How many of the last events are shown."""
_EVENTS = 3
_BAR = 8
_HOT = 0.9
"""The utilisation from which it is shown in red."""


class LiveView:
    """Shows a run on a terminal."""

    def __init__(self, console: Console, query: str, places: Sequence[tuple[str, str]], hint: str) -> None:
        """Take what never changes: the query's name, where things are, and what a person can do."""
        self._console, self._query, self._places, self._hint = console, query, places, hint
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveView:
        """Begin to draw."""
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the view off the screen."""
        self._live.__exit__(kind, error, trace)

    def show(
        self,
        progress: Progress,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        elapsed: float,
        *,
        stopping: bool,
        last: bool = False,
    ) -> None:
        """Draw the run as it is now."""
        hint = "stopping after the current epoch; Ctrl-C again ends at once" if stopping else self._hint
        self._live.update(draw(self._query, progress, events, decisions, elapsed, self._places, hint), refresh=True)


def draw(
    query: str,
    progress: Progress,
    events: Sequence[Event],
    decisions: Sequence[Decision],
    elapsed: float,
    places: Sequence[tuple[str, str]],
    hint: str,
) -> RenderableType:
    """Make the view."""
    title = Text.assemble((query, "bold"), "   ", seconds(elapsed), style="default")
    if progress.epochs == 0:
        title.append("   waiting for the first epoch", style="dim")
        parts: list[RenderableType] = [title]
    else:
        title.append(f"   epoch {progress.epoch:,}")
        parts = [title, Text(), _flow(progress), Text(), subqueries(progress.parts)]
    if decisions:
        parts += [Text(), _decided(decisions[-DECISIONS:])]
    shown = {decision.instruction.as_event() for decision in decisions}
    others = [(at, text) for at, text in events if text not in shown]
    if others:
        parts += [Text(), *(Text.assemble((clock(at), "dim"), f"  {text}") for at, text in others[-_EVENTS:])]
    foot = Table.grid(padding=(0, 2))
    for name, place in places:
        foot.add_row(Text(name, style="dim"), Text(place, overflow="fold"))
    return Group(*parts, Text(), foot, Text(hint, style="dim"))


def _flow(progress: Progress) -> Table:
    """Draw what goes through the query."""
    grid = Table.grid(padding=(0, 3))
    grid.add_column(style="dim")
    grid.add_column(justify="right")
    grid.add_column(justify="right")
    grid.add_column(no_wrap=True)
    bars = Text(sparkline(progress.rates), style="cyan")
    grid.add_row("rows in", rate(progress.rate_in), count(progress.rows_in), bars)
    grid.add_row("rows out", rate(progress.rate_out), count(progress.rows_out), _wrong(progress))
    waiting = Text(latency(progress))
    if progress.backlog:
        waiting.append(f"   backlog {count(progress.backlog)}", style="yellow")
    grid.add_row("epoch", seconds(progress.last), f"median {seconds(progress.median)}", waiting)
    return grid


def latency(progress: Progress) -> str:
    """Return how long rows took from the source to the sinks; if that was not measured, the most that a row arriving now will take."""
    if progress.waits is not None:
        return f"latency {seconds(progress.waits.p50)}, p95 {seconds(progress.waits.p95)}"
    return f"latency ≤ {seconds(longest(progress))}"


def longest(progress: Progress) -> float | None:
    """Return how long a row that arrives now will wait: for the backlog before it, and for its epoch."""
    if progress.latency is None or not progress.backlog or not progress.rate_in:
        return progress.latency
    return progress.latency + progress.backlog / progress.rate_in


def _wrong(progress: Progress) -> Text:
    text = Text()
    for name, number in (("late", progress.late), ("rejected", progress.rejected)):
        text.append(f"{name} {count(number)}   ", style="yellow" if number else "dim")
    return text


def subqueries(parts: Sequence[SubqueryProgress]) -> Table:
    """Draw a table of subqueries."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("subquery", no_wrap=True)
    table.add_column("instances", no_wrap=True)
    for name in ("rows in", "rows out"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("utilisation", no_wrap=True)
    table.add_column("state", justify="right", no_wrap=True)
    for part in parts:
        flow = rate(part.rate_in), rate(part.rate_out)
        state = size(part.state_bytes) if part.state_rows else "–"
        table.add_row(part.name, _instances(part), *flow, _used(part.utilisation), state)
    return table


def _instances(part: SubqueryProgress) -> Text:
    """Draw how many there are, and how many there were."""
    return Text.assemble(f"{part.instances:3} ", (sparkline(part.trend), "cyan"))


def _used(share: float | None) -> Text:
    if share is None:
        return Text("–")
    full = round(min(share, 1.0) * _BAR)
    style = "red" if share >= _HOT else "green"
    return Text.assemble(("━" * full, style), ("━" * (_BAR - full), "bright_black"), f" {share:4.0%}")


def _decided(decisions: Sequence[Decision]) -> Table:
    """Draw the last decisions: what, why, and what it cost."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for style in ("dim", "", "bold"):
        table.add_column(style=style, no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right", no_wrap=True)
    for decision in decisions:
        told, outcome = decision.instruction, decision.outcome
        why = str(told.trigger or told.reason)
        cost = "overtaken" if decision.overtaken else extra(outcome.extra_seconds) if outcome else "…"
        table.add_row(clock(decision.at), told.subquery, decision.change, why, cost)
    return table
