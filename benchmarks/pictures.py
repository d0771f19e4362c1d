"""Pictures of experiments, for the documents: `docs/pictures/NAME.png`, in the style of a run's chart."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.measure import ROOT, say
from springtide.charts import STYLE

FOLDER = ROOT / "docs" / "pictures"


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
