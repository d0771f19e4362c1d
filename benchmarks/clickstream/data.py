"""10 M requests in 20 Parquet files: half an hour of a web shop, 500,000 sessions of 20 requests on average.

Visitors follow links: each of 500 pages has 8, some of them taken more often than others, so runs of five pages come again, a few of
them often. Every fifth request is for a picture. About 30,000 sessions are open at a time.
"""

from pathlib import Path

import numpy as np
import polars as pl

FILES = 20
ROWS_PER_FILE = 500_000
SECONDS = 1800
PAGES, LINKS = 500, 8
CLICKS = 20
"""On average, per session."""
_LONGEST = 100
_BEGIN = 1_700_000_000_000_000


def make(folder: Path, files: int = FILES) -> Path:
    """Write the files if they are not all there; the same on every machine."""
    folder.mkdir(parents=True, exist_ok=True)
    if len(list(folder.glob("*.parquet"))) < files:
        rows = requests(files * ROWS_PER_FILE)
        for number in range(files):
            path = folder / f"{number:03d}.parquet"
            part = rows[number * ROWS_PER_FILE : (number + 1) * ROWS_PER_FILE]
            part.write_parquet(path.with_suffix(".partial"), row_group_size=125_000)
            path.with_suffix(".partial").rename(path)
    return folder


def requests(count: int) -> pl.DataFrame:
    """Make so many of them, in the order of time."""
    rng = np.random.default_rng(1)
    sessions = count // CLICKS + count // (CLICKS * 10)  # some more, so that enough are left within the half hour
    seconds = SECONDS * count / (FILES * ROWS_PER_FILE)
    links = rng.integers(0, PAGES, (PAGES, LINKS))
    taken = np.cumsum(1 / np.arange(1, LINKS + 1) ** 1.5)
    lengths = np.minimum(rng.geometric(1 / CLICKS, sessions), _LONGEST)
    at = rng.uniform(0, seconds, sessions)
    page = (rng.pareto(1.5, sessions) * 5).astype(np.int64) % PAGES
    parts = []
    for click in range(_LONGEST):
        going = np.flatnonzero(lengths > click)
        parts.append((going, page[going], at[going]))
        choice = np.searchsorted(taken, rng.uniform(0, taken[-1], sessions))
        page = links[page, choice]
        at = at + rng.exponential(8, sessions)
    session, page, at = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(at)[:count]
    pictures = rng.random(count) < 0.2
    names = pl.Series(
        [f"/Shop/Article-{i:03d}.html" for i in range(PAGES)] + [f"/img/{i:03d}.png" for i in range(PAGES)]
    )
    cookies = pl.Series(rng.integers(0, 2**63, sessions)).map_elements(lambda n: f"{n:016x}", return_dtype=pl.String)
    return pl.DataFrame(
        {
            "session": cookies.gather(session[order]),
            "page": names.gather(page[order] + PAGES * pictures),
            "status": pl.Series(np.where(rng.random(count) < 0.02, 404, 200).astype("int16")),
            "ts": pl.Series(_BEGIN + (at[order] * 1e6).astype(np.int64)).cast(pl.Datetime("us", "UTC")),
        }
    )
