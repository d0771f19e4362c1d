"""Rows with a million keys, the same every time."""

from pathlib import Path

import numpy as np
import polars as pl

import springtide as st
from benchmarks.measure import DATA

FILES = 8


def make(keys: int) -> Path:
    """Write one row for each key, in random order, to a few Parquet files."""
    folder = DATA / f"keys-{keys}"
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    order = rng.permutation(keys)
    rows = pl.DataFrame(
        {
            "src": pl.Series(order).cast(pl.String).str.zfill(9),
            "ts": pl.Series(np.arange(keys) + 1_700_000_000_000_000).cast(st.TIME),
            "calls": pl.Series(rng.integers(0, 1000, keys)),
            "seconds": pl.Series(rng.random(keys) * 3600),
            "district": pl.Series(rng.integers(0, 50, keys).astype(np.int32)),
        }
    )
    for number, part in enumerate(rows.iter_slices(-(-keys // FILES))):
        path = folder / f"{number:02d}.parquet"
        if not path.exists():
            part.write_parquet(path.with_suffix(".partial"), row_group_size=50_000)
            path.with_suffix(".partial").rename(path)
    return folder
