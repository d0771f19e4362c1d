"""Pictures of experiments, for the documents: `docs/pictures/NAME.png`, in the style of a run's chart."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.measure import ROOT, say
from springtide.charts import STYLE

FOLDER = ROOT / "docs" / "pictures"
POINTS = 400
"""A curve that is kept with a result has about so many points at most."""


def thinned(values: Iterable[float | None]) -> list[float | None]:
    """Keep a curve with a result: not more points than one can see, and not more digits.

    >>> thinned([1.23456, None, 7])
    [1.235, None, 7]
    """
    found = list(values)
    some = found[:: -(-len(found) // POINTS) or 1]
    return [float(f"{v:.4g}") if isinstance(v, float) else v for v in some]


def series(values: Iterable[float | None]) -> list[float]:
    """Read a curve that was kept; where nothing is known it has a gap."""
    return [float("nan") if v is None else v for v in values]


@contextmanager
def picture(name: str, heights: Sequence[float] = (1,), *, title: str = "") -> Iterator[Any]:
    """Give axes to draw on, one for each height, below each other with one x-axis; write the picture behind that."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 0.7 + 1.7 * sum(heights)), layout="constrained")
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        if title:
            figure.suptitle(title, fontsize=11, fontweight="bold")
        yield axes
        for panel in axes:
            if panel.get_legend_handles_labels()[0]:
                panel.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, ncols=4)
        FOLDER.mkdir(exist_ok=True)
        figure.savefig(FOLDER / f"{name}.png", dpi=110)
    say(f"drew docs/pictures/{name}.png")
