"""Which paths do visitors take through a web site? The most frequent runs of five pages, minute by minute.

The application of the StreamMine3G paper: requests are grouped by the session in their cookie, the last five pages of each session
make a pattern with every click, and the patterns are ranked.

    python examples/clickstream.py
    springtide explain examples/clickstream.py
"""

import random
from datetime import UTC, datetime, timedelta

import polars as pl

import springtide as st

LINKS = {
    "/": ["/search", "/search", "/sale"],
    "/search": ["/item", "/item", "/search", "/"],
    "/sale": ["/item", "/"],
    "/item": ["/cart", "/search", "/search"],
    "/cart": ["/pay", "/search"],
    "/pay": ["/"],
}


def requests(count: int, seed: int = 1) -> pl.DataFrame:
    """Make requests, ten per second, of visitors who follow links; browsers also ask for pictures."""
    rng = random.Random(seed)
    at: dict[int, str] = {}
    rows = []
    for i in range(count):
        visitor = rng.randrange(40)
        at[visitor] = rng.choice(LINKS[at.get(visitor, "/pay")])
        rows.append(
            {
                "session": f"s{visitor:02}",
                "user": f"u{visitor // 2:02}",
                "page": at[visitor] if rng.random() < 0.8 else "/logo.png",
                "ts": datetime(2024, 5, 1, tzinfo=UTC) + timedelta(milliseconds=100 * i),
            }
        )
    return pl.DataFrame(rows)


clicks = st.source("clicks", st.memory(requests(2_000)), ts="ts")
patterns = (
    clicks.map(page=pl.col("page").str.to_lowercase().str.strip_suffix(".html"), name="clean")
    .filter(~pl.col("page").str.ends_with(".png"), name="pages")
    .aggregate(by="session", window=st.last_n(5), pattern=st.collect("page"), name="window")
    .map(pattern=pl.col("pattern").list.join(" > "), name="pattern")
)
top = patterns.top_k(20, "pattern", window=st.tumbling("1m"), name="top")
query = st.Query("click-patterns", top.to(st.memory_sink()))


if __name__ == "__main__":
    rows = pl.concat(query.start().results()).sort("window_end", "rank")  # on Spark, on this machine
    with pl.Config(fmt_str_lengths=60):
        print(rows.filter(pl.col("rank") <= 2).select("window_end", "rank", "pattern", "count"))
