"""The table of the comparison, for docs/figures.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LABELS = {
    "springtide": "Springtide",
    "flink-sql-heap": "Flink SQL, heap",
    "flink-sql-rocksdb": "Flink SQL, RocksDB",
    "flink-hand-heap": "Flink by hand, heap",
    "flink-hand-rocksdb": "Flink by hand, RocksDB",
    "spark": "Spark's own",
    "polars": "plain Polars, one batch",
}
HEAD = """
## Beside Flink, and the limit
The same files in and the same rows out (compared), exactly once on every side, on the same two cores, turn about in one run: rows per second of whole runs, medians, with the smallest and the
largest in brackets. Flink {version} runs in one JVM with parallelism 2 and a checkpoint every second; "SQL" uses the windows and joins that it has built in, "by hand" is a DataStream program that was written
for the one query and uses what is special about it. Plain Polars computes everything at once, without a stream, state or a checkpoint: a program of some lines that a person would write,
which says what these files and columns cost where nothing is kept. "below" is a run that was ended because it took too long. `heavy-callers`, `district`, `cdr-join` and `clickstream` are the queries of the lines above, some with more records; `q5`, `q7`, `q8` and `q11` are
NEXMark's hot items, highest bid, new sellers and bids per session.

"""
FOOT = "\n![rows per second of every query and side](pictures/peers.png)\n"


def section(figures: Mapping[str, Any], rate: Callable[[Mapping[str, float]], str]) -> str:
    """Write the section; `rate` writes a median with its spread."""
    names = ["query", *LABELS.values(), "ours over Flink SQL", "ours over Flink by hand", "share of the limit"]
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for name, found in figures["queries"].items():
        rates = [_rate(found["rates"].get(side), rate) for side in LABELS]
        over = [f"{found[key]:.3g} ×" if key in found else "" for key in ("ratio_vs_flink_sql", "ratio_vs_flink_hand")]
        share = f"{found['share_of_limit']:.0%}" if "share_of_limit" in found else ""
        query = f"`{name}`, {found['records'] / 1e6:.3g} M records"
        lines.append(f"| {' | '.join([query, *rates, *over, share])} |")
    return HEAD.format(version=figures["flink"]) + "\n".join(lines) + "\n" + FOOT


def _rate(found: Mapping[str, float] | None, rate: Callable[[Mapping[str, float]], str]) -> str:
    if found is None:
        return ""
    return f"below {found['below']:,.0f}" if "below" in found else rate(found)
