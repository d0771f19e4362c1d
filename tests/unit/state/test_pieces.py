"""Segments read by range: the rows of some buckets, and few more bytes than they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import polars as pl
import pytest

from springtide.state import pieces, segment, traffic
from springtide.state.caches import Cache
from springtide.state.segment import Segment, read_segment, write_segment
from springtide.state.stores import Store
from springtide.state.tiers import Tiers
from tests.stores.misbehaving import Misbehaving, served

FILE = "state/sums/000000001-0-panes-1a2b.arrow"
URL = "fake://bucket/ckpt"


def frame(rows: int, buckets: int, seed: int = 0) -> pl.DataFrame:
    """Make rows of all kinds of columns."""
    random = Random(seed)
    texts = [None if random.random() < 0.1 else "x" * random.choice([0, 3, 12, 13, 40]) + str(i) for i in range(rows)]
    lists = [[random.random() for _ in range(random.randint(0, 3))] for _ in range(rows)]
    return pl.DataFrame(
        {
            "b": pl.Series([random.randrange(buckets) for _ in range(rows)], dtype=pl.UInt16),
            "key": pl.Series(texts, dtype=pl.String),
            "n": pl.int_range(rows, eager=True),
            "maybe": pl.Series([i if i % 3 else None for i in range(rows)], dtype=pl.Int32),
            "flag": pl.Series([i % 5 == 0 for i in range(rows)]),
            "all": pl.Series(lists, dtype=pl.List(pl.Float64)),
            "words": pl.Series([[t or ""] * (i % 3) for i, t in enumerate(texts)], dtype=pl.List(pl.String)),
            "both": pl.struct(x=pl.int_range(rows), y=pl.Series(texts), eager=True),
            "pair": pl.Series([[i % 99, -1] for i in range(rows)], dtype=pl.Array(pl.Int16, 2)),
            "ts": pl.int_range(rows, eager=True).cast(pl.Datetime("us", "UTC")),
        }
    )


@pytest.fixture
def bucket() -> Iterator[Misbehaving]:
    bucket = Misbehaving(3, trouble=0.0)
    with served(bucket=bucket):
        yield bucket


def stored(tmp_path: Path, rows: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> tuple[Tiers, Segment, pl.DataFrame]:
    """Put rows into the store as a segment; give tiers of a node that does not have it, and the rows as they were written."""
    monkeypatch.setattr(segment, "LEAST", 0)
    path = tmp_path / "written.arrow"
    written = write_segment(path, rows, "b", indexed=True)
    assert written.trailer is not None
    Store.at(URL).put(path, FILE)
    one = Segment(
        FILE,
        "panes",
        epoch=1,
        instance=0,
        version=0,
        rows=rows.height,
        bytes=written.bytes,
        low=0,
        high=0,
        crc=written.crc,
        index=written.trailer,
    )
    tiers = Tiers(str(tmp_path), backup=Store.at(URL), cache=Cache(URL, str(tmp_path / "node")))
    return tiers, one, read_segment(path)


@pytest.mark.parametrize("seed", range(8))
def test_some_buckets_are_read_as_they_were_written(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whatever is asked for, one after the other: pieces are put together."""
    random = Random(seed)
    bucket.trouble = random.choice([0.0, 0.3])
    tiers, one, whole = stored(tmp_path, frame(random.choice([1, 50, 900]), 16, seed), monkeypatch)
    monkeypatch.setattr(pieces, "WORTH", 2.0)
    monkeypatch.setattr(pieces, "_GAP", random.choice([0, 64, 4096]))
    for _ in range(4):
        wanted = random.sample(range(20), random.randint(0, 16))
        found = tiers.pieces(one, wanted)
        assert found is not None
        assert found.schema == whole.schema
        assert found.sort("n").equals(whole.filter(pl.col("b").is_in(wanted)).sort("n"))


def test_no_more_is_fetched_than_what_is_wanted(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers, one, whole = stored(tmp_path, frame(60_000, 64), monkeypatch)
    monkeypatch.setattr(pieces, "_GAP", 0)
    traffic.taken()
    found = tiers.pieces(one, [7])
    assert found is not None
    share = one.bytes * found.height / whole.height
    assert traffic.taken().fetched < 1.2 * share + one.index[0] + 4096, "the bucket, the index, both ends"  # type: ignore[index]
    tiers.pieces(one, [7])
    assert traffic.taken() == traffic.NONE, "what is here is not asked for"
    tiers.pieces(one, [7, 8])
    assert traffic.taken().fetched < 1.2 * share + 4096, "only what no piece has"


def test_most_of_a_segment_is_read_as_a_whole(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers, one, _ = stored(tmp_path, frame(900, 16), monkeypatch)
    assert tiers.pieces(one, range(15)) is None
    tiers.find(one)
    assert tiers.pieces(one, [3]) is None, "it is here"


def test_what_is_damaged_here_is_fetched_again(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers, one, whole = stored(tmp_path, frame(900, 16), monkeypatch)
    for damage in ("arrow", "json", "index"):
        for file in (tmp_path / "node").rglob(f"*{damage}"):
            if file.is_file():
                file.write_bytes(b"x" * file.stat().st_size)
        pieces._whole.clear()
        found = tiers.pieces(one, [3, 4])
        assert found is not None
        assert found.equals(whole.filter(pl.col("b").is_in([3, 4])))


@pytest.mark.parametrize("where", ["rows", "index", "all"])
def test_what_is_damaged_in_the_store_is_never_taken(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    tiers, one, _ = stored(tmp_path, frame(900, 16), monkeypatch)
    (name, data), *_ = bucket.files.items()
    assert one.index is not None
    cuts = {"rows": range(one.bytes - one.index[0]), "index": range(one.bytes - one.index[0], one.bytes)}
    damaged = bytearray(data)
    for place in cuts.get(where, range(one.bytes)):
        damaged[place] ^= 1
    bucket.files[name] = bytes(damaged)
    assert tiers.pieces(one, [3]) is None, "whoever reads it as a whole finds out"
    assert not [f for f in (tmp_path / "node").rglob("*.arrow") if f.is_file()]


def test_a_cache_is_trimmed_of_pieces_too(bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiers, one, whole = stored(tmp_path, frame(60_000, 64), monkeypatch)
    tiers.pieces(one, [3])
    (piece,) = (f for f in (tmp_path / "node").rglob("*.arrow") if f.is_file())
    assert piece.stat().st_size > 10 * piece.stat().st_blocks * 512, "it is mostly holes"
    monkeypatch.setattr("springtide.state.caches._YOUNG", -1.0)
    assert tiers.cache is not None
    Cache(URL, str(tmp_path / "node"), limit=1).trim(now=True)
    assert not piece.exists()
    found = tiers.pieces(one, [3])
    assert found is not None
    assert found.equals(whole.filter(pl.col("b") == 3))
