"""What exact sums cost: this checkout beside another one, from before, turn about on the same files.

    make bench NAME=exact-sums ARGS="--before PATH"

Each checkout has a Spark session of its own in a process of its own, with its own virtual environment (`exact_side.py`); one works while the other waits, and who comes first changes
with every round. The queries are those of `heavy-callers` and `district`, with the duration as it is there (an integer) and as a float. A ratio is that of the median rates of a round, steady
state as there; `exact_ratio` is its median over the rounds.
"""

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.cdr.data import FILES, make
from benchmarks.measure import DATA, ROOT, result, say, scratch, summary

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
        sides = {"before": _Side(given.before, data, folder / "before"), "exact": _Side(ROOT, data, folder / "exact")}
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
    sides: dict[str, "_Side"], query: dict[str, Any], rounds: int, label: str
) -> tuple[list[float], dict[str, list[float]]]:
    ratios: list[float] = []
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-1, rounds):  # the first one warms up
        order = list(sides) if number % 2 else list(reversed(sides))
        found = {name: sides[name].run(query) for name in order}
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


class _Side:
    """A checkout at work."""

    def __init__(self, checkout: Path, data: Path, folder: Path) -> None:
        folder.mkdir()
        python = checkout / ".venv" / "bin" / "python"
        worker = Path(__file__).with_name("exact_side.py")
        # What this process was told of Python and modules is not for the other checkout.
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "VIRTUAL_ENV"))}
        env |= {"PYTHONPATH": str(checkout / "src"), "PYSPARK_PYTHON": str(python)}
        self._process = subprocess.Popen(
            [str(python), str(worker), str(data), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            cwd=folder,
        )

    def run(self, query: dict[str, Any]) -> dict[str, Any]:
        """Run a query to its end; give the rates of its epochs and how many windows came out."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(query), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError("a checkout ended before its time; see what it said above")

    def stop(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
