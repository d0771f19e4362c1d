"""What the rates say: ours over theirs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any


def of_query(rates: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Compute ours over theirs; both of Flink's forms, each with the state that is faster."""
    medians = {side: rate["median"] for side, rate in rates.items() if "median" in rate}
    ours = medians.get("springtide")
    if ours is None:
        return {}
    figures: dict[str, Any] = {}
    for word, start in (
        ("flink", "flink-"),
        ("flink_sql", "flink-sql"),
        ("flink_hand", "flink-hand"),
        ("spark", "spark"),
    ):
        if theirs := {side: median for side, median in medians.items() if side.startswith(start)}:
            figures[f"ratio_vs_{word}"] = _short(ours / max(theirs.values()))
            if word == "flink":
                figures["flink_best"] = max(theirs, key=lambda side: theirs[side])
    if "polars" in medians:
        figures["share_of_limit"] = _short(ours / medians["polars"])
    return figures


def of_all(queries: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Give the worst and the median over all queries, of those figures that they have."""
    flinks = [figures["ratio_vs_flink"] for figures in queries.values() if "ratio_vs_flink" in figures]
    shares = [figures["share_of_limit"] for figures in queries.values() if "share_of_limit" in figures]
    over = {"worst_ratio_vs_flink": min(flinks), "median_ratio_vs_flink": statistics.median(flinks)} if flinks else {}
    return over | ({"share_of_limit": min(shares)} if shares else {})


def _short(value: float) -> float:
    return float(f"{value:.4g}")
