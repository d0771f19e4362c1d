"""What a change of the code costs: this checkout beside another one, from before, turn about on the same rows.

    make bench NAME=before-after ARGS="--before PATH"

The queries are those of `epoch-floor`, `heavy-callers` and `clickstream`. Both checkouts must give the same rows. A ratio is the speed of this checkout over that of the other in one round
(more than 1: faster); `speed_ratio` is its median over all rounds. Two processes of the very same code differ by up to a tenth for as long as they live, so every checkout gets several,
one after the other (`--pairs`). `--epochs`, `--files`, `--pairs` and `--rounds` make it smaller.
"""

import argparse
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cdr import data as calls
from benchmarks.clickstream import data as clicks
from benchmarks.measure import DATA, ROOT, result, say, scratch, summary
from benchmarks.sides import Side, turn_about

QUERIES = ("epoch-floor", "heavy-callers", "clickstream")
BEFORE, AFTER = "before", "after"
ROWS_PER_EPOCH = 2_000_000


def main(*args: str) -> None:
    """Compare two checkouts."""
    parser = argparse.ArgumentParser(prog="before-after")
    parser.add_argument(
        "--before", type=Path, required=True, help="a checkout from before; its .venv is used if it has one"
    )
    parser.add_argument("--pairs", type=int, default=4, help="of processes, one for each checkout")
    parser.add_argument("--rounds", type=int, default=4, help="of each pair")
    parser.add_argument("--epochs", type=int, default=60, help="of 100 rows each, in epoch-floor")
    parser.add_argument("--files", type=int, default=calls.FILES, help="of 500,000 rows each, in the other two")
    parser.add_argument("--only", choices=QUERIES, action="append", help="compare only this query; may be given again")
    given = parser.parse_args(args)
    files = min(given.files, calls.FILES), min(given.files, clicks.FILES)
    sizes = [min(ROWS_PER_EPOCH, n * calls.ROWS_PER_FILE // 4) for n in files]  # several epochs of few files, too
    called = calls.make(DATA / ("cdr" if files[0] == calls.FILES else f"cdr-{files[0]}"), files[0])
    clicked = clicks.make(DATA / f"clickstream-{files[1]}", files[1])
    tasks: dict[str, dict[str, Any]] = {
        "epoch-floor": {"epochs": given.epochs},
        "heavy-callers": {"data": str(called), "rows_per_epoch": sizes[0]},
        "clickstream": {"data": str(clicked), "rows_per_epoch": sizes[1]},
    }
    queries = given.only or QUERIES
    ratios: dict[str, list[float]] = {query: [] for query in queries}
    speeds: dict[str, dict[str, list[float]]] = {query: {BEFORE: [], AFTER: []} for query in queries}
    for _ in range(given.pairs):
        with scratch() as folder, _sides(given.before, folder) as sides:
            for query in queries:
                for found in _rounds(sides, query, tasks[query], given.rounds):
                    ratios[query].append(found[AFTER] / found[BEFORE])
                    for side, speed in found.items():
                        speeds[query][side].append(speed)
    result(
        "before-after",
        speed_ratio={query: float(f"{statistics.median(ratios[query]):.4g}") for query in queries},
        ratios={query: summary(ratios[query]) for query in queries},
        speeds={query: {side: summary(speeds[query][side]) for side in (BEFORE, AFTER)} for query in queries},
        pairs=given.pairs,
        rounds=given.rounds,
    )


@contextmanager
def _sides(before: Path, folder: Path) -> Iterator[dict[str, Side]]:
    script = Path(__file__).with_name("before_after_side.py")
    sides = {BEFORE: Side(before, script, folder / BEFORE), AFTER: Side(ROOT, script, folder / AFTER)}
    yield sides
    for side in sides.values():
        side.stop()


def _rounds(sides: dict[str, Side], query: str, task: dict[str, Any], rounds: int) -> Iterator[dict[str, float]]:
    """Run a query on both sides, again and again; give the speeds of every round that counts."""
    for number in range(-1, rounds):  # the first one warms up
        found = {name: sides[name].run({"query": query, **task}) for name in turn_about(sides, number)}
        if found[BEFORE]["rows"] != found[AFTER]["rows"]:
            raise AssertionError(f"{query}: the checkouts give different rows: {found}")
        if number < 0:
            continue
        now = ", ".join(f"{name} {found[name]['speed']:,.1f} {found[name]['unit']}" for name in sides)
        say(f"{query}: {now}, {found[AFTER]['speed'] / found[BEFORE]['speed']:.3f} ×")
        yield {name: answer["speed"] for name, answer in found.items()}
