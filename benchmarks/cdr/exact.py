"""What exact sums cost: this checkout beside another one, from before, turn about on the same files.

    make bench NAME=exact-sums ARGS="--before PATH"

Each checkout has a Spark session of its own in a process of its own, with its own virtual environment (`exact_side.py`); one works while the other waits, and who comes first changes
with every round. The queries are those of `heavy-callers` and `district`, with the duration as it is there (an integer) and as a float. A ratio is that of the median rates of a round, steady
state as there; `exact_ratio` is its median over the rounds.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

from benchmarks.cdr.data import FILES, make
from benchmarks.measure import DATA, ROOT, result, say, scratch, summary
from benchmarks.sides import Side, turn_about

QUERIES: dict[str, dict[str, Any]] = {
    "heavy-callers": {"size": 3600, "every": 60, "key": "src", "steady_after": 10},
    "district": {"size": 60, "every": 10, "key": "district", "steady_after": 4},
}


def main(*args: str) -> None:
    """Compare two checkouts."""
    parser = argparse.ArgumentParser(prog="exact-sums")
    parser.add_argument("--before", type=Path, required=True, help="a checkout from before, with its .venv")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--files", type=int, default=FILES, help="of 500,000 rows each")
    given = parser.parse_args(args)
    data = make(DATA / "cdr") if given.files == FILES else make(DATA / f"cdr-{given.files}", given.files)
    figures: dict[str, Any] = {"exact_ratio": {}, "float_ratio": {}, "ratios": {}, "rates": {}}
    with scratch() as folder:
        script = Path(__file__).with_name("exact_side.py")
        sides = {
            "before": Side(given.before, script, folder / "before", str(data)),
            "exact": Side(ROOT, script, folder / "exact", str(data)),
        }
        for name, query in QUERIES.items():
            for kind, ratio_name in (("integer", "exact_ratio"), ("float", "float_ratio")):
                ratios, rates = _compared(sides, {**query, "float": kind == "float"}, given.rounds, f"{name}, {kind}")
                figures[ratio_name][name] = float(f"{statistics.median(ratios):.4g}")
                figures["ratios"][f"{name}, {kind}"] = summary(ratios)
                figures["rates"][f"{name}, {kind}"] = {side: summary(rates[side]) for side in sides}
        for side in sides.values():
            side.stop()
    result("exact-sums", **figures)


def _compared(
    sides: dict[str, Side], query: dict[str, Any], rounds: int, label: str
) -> tuple[list[float], dict[str, list[float]]]:
    ratios: list[float] = []
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-1, rounds):  # the first one warms up
        found = {name: sides[name].run(query) for name in turn_about(sides, number)}
        if found["before"]["windows"] != found["exact"]["windows"]:
            raise AssertionError(f"{label}: {found}")
        if number < 0:
            continue
        medians = {name: statistics.median(f["rates"]) for name, f in found.items()}
        for name, rate in medians.items():
            rates[name].append(rate)
        ratios.append(medians["exact"] / medians["before"])
        say(
            f"{label}: before {medians['before'] / 1e6:.2f}, exact {medians['exact'] / 1e6:.2f} M rows/s, {ratios[-1]:.3f} ×"
        )
    return ratios, rates
