"""10 M call records in 20 Parquet files: 2 hours of event time, 10,000 callers."""

from pathlib import Path

import numpy as np
import polars as pl

FILES = 20
ROWS_PER_FILE = 500_000
_MS_PER_FILE = 360_000
_BEGIN = 1_700_000_000_000


def make(folder: Path, files: int = FILES) -> Path:
    """Write the files that are not there yet; the same on every machine."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        path = folder / f"{number:03d}.parquet"
        if not path.exists():
            calls(number).write_parquet(path.with_suffix(".partial"), row_group_size=125_000)
            path.with_suffix(".partial").rename(path)
    return folder


def split(data: Path, folder: Path, parts: int) -> Path:
    """Write each of the files as so many smaller ones, where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(data.glob("*.parquet")):
        paths = [folder / f"{file.stem}-{i:02d}.parquet" for i in range(parts)]
        if not all(path.exists() for path in paths):
            rows = pl.read_parquet(file)
            height = rows.height // parts
            for i, path in enumerate(paths):
                rows[i * height : (i + 1) * height].write_parquet(path.with_suffix(".partial"))
                path.with_suffix(".partial").rename(path)
    return folder


def calls(number: int) -> pl.DataFrame:
    """Make the records of one file."""
    rng, rows = np.random.default_rng(number), ROWS_PER_FILE
    ts = _BEGIN + number * _MS_PER_FILE + np.sort(rng.integers(0, _MS_PER_FILE, rows))

    def phone() -> pl.Series:
        return pl.Series(rng.integers(0, 10_000, rows)).cast(pl.String).str.zfill(9)

    return pl.DataFrame(
        {
            "src": phone(),
            "dst": phone(),
            "start": ts - rng.integers(1000, 600_000, rows),
            "end": ts,
            "district": rng.integers(0, 200, rows).astype("int32"),
            "lat": rng.random(rows) * 180 - 90,
            "lon": rng.random(rows) * 360 - 180,
            "ts": pl.Series(ts).cast(pl.Datetime("ms", "UTC")).dt.cast_time_unit("us"),
        }
    )
