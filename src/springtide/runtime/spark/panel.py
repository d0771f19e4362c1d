"""A run as a notebook shows it: a live panel if `anywidget` is installed (`springtide[notebook]`), otherwise the same as plain HTML."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

from springtide.elastic.decisions import Decisions
from springtide.query.errors import SpringtideError
from springtide.query.html import note
from springtide.query.plurals import plural

if TYPE_CHECKING:
    from springtide.runtime.spark.run import Run

_EVERY = 0.5
"""Seconds between two looks at the run."""
_EPOCHS, _DECISIONS = 60, 3
"""How many epochs are drawn, and how many decisions are listed."""
_WIDE, _HIGH = 240, 36

_SCRIPT = """
function render({ model, el }) {
  const show = () => { el.innerHTML = model.get("html"); };
  model.on("change:html", show);
  show();
}
export default { render };
"""


def bundle(run: Run) -> dict[str, Any]:
    """Return a run in the forms that a notebook may choose from."""
    shown = {"text/plain": said(run), "text/html": panel(run)}
    widget = _widget(run)
    return shown | (widget or {})


def said(run: Run) -> str:
    """Say in a line how a run is doing."""
    status = run.status()
    rows = sum(source["accepted"] for source in status["sources"].values())
    epoch = f"epoch {status['epoch']}" if status["epoch"] >= 0 else "no epoch yet"
    return f"{run.name}: {_state(run)}, {epoch}, {plural(rows, 'row')} in"


def panel(run: Run) -> str:
    """Return a run as HTML: how far it is, what its subqueries do, what was decided."""
    epochs, snapshot = run.epochs()[-_EPOCHS:], run.last_snapshot
    parts = [
        f'<div style="font-weight:600">{escape(said(run))}</div>',
        _line("rows in an epoch", [m.metrics.rows for m in epochs]),
        _line("seconds of an epoch", [m.metrics.seconds for m in epochs]),
        "" if snapshot is None else snapshot._repr_html_(),
    ]
    with suppress(SpringtideError):
        if decisions := Decisions(run.decisions(last=_DECISIONS)):
            parts.append(decisions._repr_html_())
    parts.append(note(f"checkpoint {run.checkpoint_store.url}"))
    return f"<div>{''.join(parts)}</div>"


def _state(run: Run) -> str:
    if run.active:
        return "running"
    try:
        run.wait(0)
    except SpringtideError as error:
        return f"failed: {error}"
    return "ended with its input" if run.status()["ended"] else "stopped"


def _line(title: str, values: Sequence[float]) -> str:
    """Draw values as a line, and say the last and the greatest."""
    if len(values) < 2:
        return ""
    top = max(values) or 1.0
    points = " ".join(
        f"{_WIDE * i / (len(values) - 1):.1f},{_HIGH - 2 - (_HIGH - 4) * value / top:.1f}"
        for i, value in enumerate(values)
    )
    words = f"{title}: {values[-1]:,.4g}, at most {max(values):,.4g}"
    return (
        f'<div style="display:inline-block;margin:.3em 1.5em .3em 0"><svg width="{_WIDE}" height="{_HIGH}" role="img" aria-label="{escape(words)}">'
        f'<polyline points="{points}" fill="none" stroke="#3b82f6" stroke-width="1.5"/></svg><br>'
        f'<span style="opacity:.7;font-size:90%">{escape(words)}</span></div>'
    )


def _widget(run: Run) -> dict[str, Any] | None:
    """Make a panel that follows the run; None if `anywidget` is not installed."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        return None

    class Panel(anywidget.AnyWidget):
        """Shows HTML that the kernel keeps updating."""

        _esm = _SCRIPT
        html = traitlets.Unicode().tag(sync=True)

    live = Panel(html=panel(run))

    def follow() -> None:
        last = False
        while not last:
            with suppress(SpringtideError):
                run.wait(_EVERY)
            last = not run.active  # asked first: the end is shown too
            live.html = panel(run)

    threading.Thread(target=follow, name=f"springtide-panel-{run.name}", daemon=True).start()
    shown = live._repr_mimebundle_()
    return dict((shown[0] if isinstance(shown, tuple) else shown) or {})
