"""Tuples for joins, a file per epoch; the same on every machine."""

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

import springtide as st

BEGIN = 1_700_000_000_000_000
"""Microseconds."""


Columns = dict[str, np.ndarray | pl.Series]


def write(
    folder: Path, files: int, seconds: int, rate: int, make: Callable[[np.random.Generator, np.ndarray], Columns]
) -> Path:
    """Write files of some seconds each, with `rate` rows a second, no two at one time, and the columns that `make` gives for these times."""
    folder = folder.with_name(f"{folder.name}-{files}")
    if (folder / "done").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rows, gap = rate * seconds, 1_000_000 // rate
    for number in range(files):
        rng = np.random.default_rng([number, zlib.crc32(folder.name.encode())])
        ts = BEGIN + (number * rows + np.arange(rows)) * gap + rng.integers(0, gap, rows)
        frame = pl.DataFrame({"ts": pl.Series(ts).cast(st.TIME), **make(rng, ts)})
        frame.write_parquet(folder / f"{number:03d}.parquet", row_group_size=rows)
    (folder / "done").touch()
    return folder


def comparisons(left: list[np.ndarray], right: list[np.ndarray], within: int) -> list[int]:
    """Count the pairs within the window that come together with each file: of the new left with all right, of the old left with the new right."""
    counts = []
    for number in range(len(left)):
        so_far = np.concatenate(right[: number + 1])
        before = np.concatenate(left[:number]) if number else np.empty(0, dtype=np.int64)
        counts.append(_pairs(left[number], so_far, within) + _pairs(before, right[number], within))
    return counts


def _pairs(some: np.ndarray, others: np.ndarray, within: int) -> int:
    """Count pairs of times at most `within` apart; both are sorted."""
    low, high = (np.searchsorted(others, some + d, side=s) for d, s in ((-within, "left"), (within, "right")))
    return int((high - low).sum())
