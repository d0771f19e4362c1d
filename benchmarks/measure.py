"""What every benchmark needs: a session, a place for data, medians with their spread, one JSON line at the end."""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pyspark

import springtide as st
from benchmarks import figures as figures_page

ROOT = Path(__file__).parents[1]
DATA = ROOT / "build" / "bench"


def session(**settings: str) -> Any:
    """Start Spark on two slots, with the engine's own settings."""
    say("starting Spark")
    wanted = {"spark_driver_memory": "6g", "spark_sql_shuffle_partitions": "2"} | settings
    return st.spark_session("local[2,4]", **wanted)


def say(text: str) -> None:
    """Show progress, beside the result."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder that is gone afterwards."""
    DATA.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=DATA))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def summary(values: Sequence[float]) -> dict[str, float]:
    """Give the median and the spread (smallest and largest) of several measurements."""
    return {
        "median": _round(statistics.median(values)),
        "min": _round(min(values)),
        "max": _round(max(values)),
        "n": len(values),
    }


def memory() -> int:
    """Count the resident bytes of this process and all below it, shared pages once (PSS)."""
    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total


def processor_seconds() -> float:
    """Sum up the processor time that this process and all below it have used, those that have ended included where their parents waited for them."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return total


def result(name: str, **figures: Any) -> None:
    """Print the JSON line, and keep it with machine and revision."""
    line = {
        "name": name,
        **{k: _round(v) if isinstance(v, float) else v for k, v in figures.items()},
        "machine": _machine(),
        "revision": revision(),
    }
    keep(name, line)
    figures_page.draw(name)
    print(json.dumps(line))


def kept(name: str) -> dict[str, Any]:
    """Return what was kept of a benchmark; nothing if it has not been run."""
    path = figures_page.RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def keep(name: str, line: Mapping[str, Any]) -> None:
    """Keep a result as it is, and write the table of all anew."""
    figures_page.RESULTS.mkdir(exist_ok=True)
    (figures_page.RESULTS / f"{name}.json").write_text(json.dumps(line, indent=1) + "\n", "utf-8")
    figures_page.write()


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _machine() -> dict[str, Any]:
    memory_gb = round(psutil.virtual_memory().total / 2**30)
    versions = {"python": platform.python_version(), "spark": pyspark.__version__, "polars": pl.__version__}
    return {"cores": os.cpu_count(), "memory_gb": memory_gb, **versions}


def revision() -> str:
    """Say which commit this is."""
    found = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"
