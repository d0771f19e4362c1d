"""Which was the longest tweet of each hashtag, minute by minute? A tuple with several keys.

The example with which the STRETCH paper begins: a tweet has several hashtags, and counts for each of them. `keys` names a list column; each tweet
is sent once to every instance that has a hashtag of it, never once per hashtag, and reaches the state of each.

    python examples/hashtags.py
    springtide explain examples/hashtags.py
    springtide run examples/hashtags.py
"""

import random
from datetime import UTC, datetime, timedelta

import polars as pl

import springtide as st

MINUTE = st.micros("1m")
HASHTAGS = ["#tide", "#moon", "#sea", "#harbour", "#gulls", "#salt", "#storm", "#rope", "#sail", "#drift"]
WORDS = ["we", "saw", "the", "water", "come", "in", "over", "a", "long", "grey", "bank", "and", "out", "again"]
START = datetime(2024, 5, 1, tzinfo=UTC)


def tweets(count: int, seed: int = 1) -> pl.DataFrame:
    """Make tweets, five per second, with up to four hashtags each; some hashtags are popular."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        tags = {HASHTAGS[min(int(rng.expovariate(0.4)), 9)] for _ in range(rng.randrange(5))}
        text = " ".join([*rng.choices(WORDS, k=rng.randint(2, 14)), *sorted(tags)])
        rows.append({"user": f"u{rng.randrange(50):02}", "text": text, "ts": START + timedelta(milliseconds=200 * i)})
    return pl.DataFrame(rows)


class Longest(st.KeyOperator):
    """Keeps the longest tweet of one hashtag in this minute, gives it when the minute is over, and is forgotten."""

    state = {"tweet": pl.String, "closes": pl.Int64}
    output = {"hashtag": pl.String, "length": pl.Int64, "tweet": pl.String, "ts": st.TIME}
    timer = "closes"

    def init(self, key):
        return {"tweet": "", "closes": None}

    def process(self, key, state, tuples, ready_ts):
        for text, closes in tuples.select("text", "closes").iter_rows():
            state["closes"] = closes
            if len(text) > len(state["tweet"]):
                state["tweet"] = text
        return []

    def on_time(self, key, state, ready_ts):
        state["closes"] = None
        return [{"hashtag": key[0], "length": len(state["tweet"]), "tweet": state["tweet"], "ts": ready_ts}]

    def keep(self, key, state):
        return state["closes"] is not None


stream = st.source("tweets", st.memory(tweets(1_500)), ts="ts")
longest = stream.map(
    hashtags=pl.col("text").str.extract_all("#[a-z]+"),
    closes=pl.col("ts").dt.epoch("us") // MINUTE * MINUTE + MINUTE,
    name="hashtags",
).operator(Longest(), keys="hashtags", name="longest")
query = st.Query("hashtags", longest.to(st.memory_sink()))


if __name__ == "__main__":
    rows = pl.concat(query.start().results()).sort("ts", "hashtag")  # on Spark, on this machine
    with pl.Config(fmt_str_lengths=60):
        print(rows.filter(pl.col("hashtag") == "#tide").select("ts", "hashtag", "length", "tweet"))
