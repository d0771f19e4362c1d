"""Which words are said most often? Counts of words, half a minute at a time, and the five most frequent ones.

The word count of the SEEP paper: a stream of sentences is split into words, which are counted in windows; the counts are the state
that has to survive. Here they are also ranked.

    python examples/word_count.py
    springtide explain examples/word_count.py
"""

import random
from datetime import UTC, datetime, timedelta

import polars as pl

import springtide as st

NOUNS = ["the tide", "a boat", "the harbour", "the moon", "a gull", "the sand", "a wave"]
VERBS = ["follows", "carries", "leaves", "finds", "covers"]


def sentences(count: int, seed: int = 1) -> pl.DataFrame:
    """Make sentences, four per second."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        one, other = rng.choices(NOUNS, weights=range(len(NOUNS), 0, -1), k=2)
        when = datetime(2024, 5, 1, tzinfo=UTC) + timedelta(milliseconds=250 * i)
        rows.append({"text": f"{one} {rng.choice(VERBS)} {other}.".capitalize(), "ts": when})
    return pl.DataFrame(rows)


lines = st.source("lines", st.memory(sentences(600)), ts="ts")
words = lines.select(word=pl.col("text").str.to_lowercase().str.strip_chars(".").str.split(" ")).explode("word")
long = words.filter(pl.col("word").str.len_chars() > 3)
counts = long.aggregate(by="word", window=st.tumbling("30s"), n=st.count(), name="counts")
top = counts.top_k(5, "word", weight="n", window=st.tumbling("30s"), name="top")
query = st.Query("word-count", top.to(st.memory_sink()))


if __name__ == "__main__":
    rows = pl.concat(query.start().results()).sort("window_end", "rank")  # on Spark, on this machine
    print(rows.filter(pl.col("rank") <= 2).select("window_end", "rank", "word", "count"))
