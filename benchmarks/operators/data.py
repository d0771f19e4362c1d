"""Payments of many users: first one of each, so that every key is in state, then of users at random."""

from pathlib import Path

import numpy as np
import polars as pl

import springtide as st
from benchmarks.measure import say

FILES_OF_ALL = 8
"""The files with one payment of each user."""


def make(folder: Path, users: int, files: int, seed: int = 1) -> Path:
    """Write the files, an eighth as many rows each as there are users; leave them alone if they are there."""
    folder = folder / f"{users}-{files}"
    if (folder / "done").exists():
        return folder
    say(f"making payments of {users} users")
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows, each = users // FILES_OF_ALL, rng.permutation(users)
    for i in range(files):
        user = each[i * rows : (i + 1) * rows] if i < FILES_OF_ALL else rng.integers(0, users, rows)
        frame = pl.DataFrame(
            {"user": user, "amount": rng.integers(1, 1000, rows), "ts": np.arange(i * rows, (i + 1) * rows)}
        )
        frame = frame.with_columns((pl.col("ts") * 1000 + 1_714_521_600_000_000).cast(st.TIME))
        frame.write_parquet(folder / f"{i:03d}.parquet")
    (folder / "done").touch()
    return folder
