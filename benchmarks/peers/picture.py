"""The picture of the comparison: docs/pictures/peers.png."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import pictures
from benchmarks.peers.table import LABELS

COLOURS = ("#0b6e99", "#e8590c", "#ffa94d", "#862e9c", "#cc5de8", "#868e96", "#212529")


def draw(figures: Mapping[str, Any]) -> None:
    """Draw the rates of all queries and sides, on a logarithmic scale."""
    queries = figures["queries"]
    width = 0.8 / len(LABELS)
    with pictures.picture("peers", (2,), title="Rows per second on two cores, Parquet to Parquet, exactly once") as (
        axes,
    ):
        for i, ((side, label), colour) in enumerate(zip(LABELS.items(), COLOURS, strict=True)):
            found = [
                (place + (i - len(LABELS) / 2 + 0.5) * width, figures["rates"][side])
                for place, figures in enumerate(queries.values())
                if "median" in figures["rates"].get(side, {})
            ]
            if found:
                places, rates = zip(*found, strict=True)
                heights = [rate["median"] for rate in rates]
                spread = [[r["median"] - r["min"] for r in rates], [r["max"] - r["median"] for r in rates]]
                axes.bar(places, heights, width, yerr=spread, color=colour, label=label, error_kw={"linewidth": 0.6})
        axes.set_yscale("log")
        axes.set_xticks(range(len(queries)), list(queries))
        axes.set_ylabel("rows/s")
