"""A run as plain lines, for pipes and logs: at most one line per second, and one per event."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console

from springtide.cli.formatting import clock, count, rate, seconds
from springtide.cli.live_view import Event, latency
from springtide.cli.progress import Progress
from springtide.elastic.decisions import Decision

_EVERY = 1.0


class PlainView:
    """Writes lines."""

    def __init__(self, console: Console) -> None:
        """Write to a console."""
        self._console = console
        self._epoch = -1
        self._at = -_EVERY
        self._told = 0.0
        self._stopping = False

    def __enter__(self) -> PlainView:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End: there is nothing to tidy up."""

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
        """Write what is new, if it is time; the last state is always written."""
        for at, text in events:
            if at > self._told:
                self._told = at
                self._write(f"{clock(at)}  {text}")
        if stopping and not self._stopping:
            self._stopping = True
            self._write("stopping after the current epoch")
        due = last or elapsed - self._at >= _EVERY
        if due and progress.epochs and progress.epoch != self._epoch:
            self._epoch, self._at = progress.epoch, elapsed
            self._write(line(progress, elapsed))

    def _write(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
        self._console.file.flush()  # readers of a pipe want it now


def line(progress: Progress, elapsed: float) -> str:
    """Return one line about how a run is doing."""
    parts = [
        f"{seconds(elapsed):>6}",
        f"epoch {progress.epoch}",
        f"in {count(progress.rows_in)} ({rate(progress.rate_in)})",
        f"out {count(progress.rows_out)} ({rate(progress.rate_out)})",
        f"epoch time {seconds(progress.last)}",
        latency(progress),
        f"instances {' '.join(str(p.instances) for p in progress.parts)}",
        f"state {count(sum(p.state_rows for p in progress.parts))}",
    ]
    parts += [f"backlog {count(progress.backlog)}"] if progress.backlog else []
    parts += [f"late {count(progress.late)}"] if progress.late else []
    parts += [f"rejected {count(progress.rejected)}"] if progress.rejected else []
    return "  ".join(parts)
