"""Files of an object store as a source: each is read once, whatever its name; what has changed or gone is said, and what is wrong comes before anything."""

from __future__ import annotations

import io
import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import polars as pl
import pytest

import springtide as st
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import execute
from springtide.sources import places
from springtide.state.checkpoint import Checkpoint
from springtide.state.manifest import SourceState
from springtide.state.stores import Store
from tests.stores.misbehaving import Misbehaving, served
from tests.unit.sources.conftest import Drain

COLUMNS = {"x": pl.Int64}
MAKE: dict[str, Any] = {"csv": st.csv, "json": st.json, "parquet": st.parquet}
ODD = ["a b", "ä", "p%20q", "x#1", "q+r", "[0]", "z=1"]
"""Names that an address would not have."""


def content(kind: str, xs: list[int]) -> bytes:
    if kind == "csv":
        return ("x\n" + "".join(f"{x}\n" for x in xs)).encode()
    if kind == "json":
        return "".join(json.dumps({"x": x}) + "\n" for x in xs).encode()
    file = io.BytesIO()
    pl.DataFrame({"x": xs}, schema=COLUMNS).write_parquet(file, row_group_size=2)
    return file.getvalue()


@pytest.fixture(params=MAKE)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PAUSE", 0.0)


@pytest.fixture(params=["s3", "fake"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty bucket of a real server, and of the store in this process."""
    if request.param == "s3":
        yield request.getfixturevalue("s3")
        return
    with served(bucket=Misbehaving(trouble=0.0)):
        yield "fake://bucket"


def within(address: str, path: str) -> str:
    """The address of something in a bucket, with its options."""
    bucket, mark, options = address.partition("?")
    return f"{bucket}/{path}{mark}{options}"


def read(source: Any, drain: Drain, limit: int = 1000) -> list[int]:
    sent = pickle.loads(cloudpickle.dumps(source))  # as it goes to tasks
    assert sent.path == source.path
    return list(drain(source, limit).values("x"))


def test_a_folder_a_pattern_or_a_file(kind: str, address: str, drain: Drain) -> None:
    store = Store.at(address)
    for name, xs in {"b": [], "c": [6, 7, 8], "a": [0, 1, 2, 3, 4, 5], "_x": [9], "d.tmp": [9], "sub/e": [10]}.items():
        store.write(f"in/{name}.{kind}" if "." not in name else f"in/{name}", content(kind, xs))
    store.write(f"in-other/f.{kind}", content(kind, [11]))

    def source(path: str) -> Any:
        return MAKE[kind](within(address, path), schema=COLUMNS)

    for limit in (1, 2, 5, 1000):
        assert read(source("in"), drain, limit) == list(range(9))
    assert read(source("in/"), drain) == list(range(9))
    assert read(source(f"in/[ab].{kind}"), drain) == [0, 1, 2, 3, 4, 5]
    assert read(source(f"*/*.{kind}"), drain) == [11, *range(9)]
    assert read(source(f"in/*/e.{kind}"), drain) == [10]
    assert read(source(f"in/c.{kind}"), drain) == [6, 7, 8]


def test_odd_names(kind: str, address: str, drain: Drain) -> None:
    store = Store.at(address)
    for number, name in enumerate(ODD):
        store.write(f"in/{name}.{kind}", content(kind, [number]))
    assert sorted(read(MAKE[kind](within(address, "in"), schema=COLUMNS), drain)) == list(range(len(ODD)))


def test_types_are_those_of_a_file_on_disk(address: str, tmp_path: Path) -> None:
    """The same columns and values as Polars reads from the same file here, whichever of them are wanted."""
    frame = pl.DataFrame(
        {
            "ts": pl.Series([0, 1_000_000, None], dtype=pl.Int64).cast(st.TIME),
            "e": pl.Series(["a", "b", None], dtype=pl.Enum(["a", "b"])),
            "s": [{"i": 1, "l": [1.5]}, {"i": None, "l": []}, None],
            "a.b": ["x", "y", "z"],
            "d": pl.Series(["1.25", "2.50", None]).cast(pl.Decimal(10, 2)),
            "day": pl.Series([1, 2, 3]).cast(pl.Date),
            "n": pl.Series([1, 2, 3], dtype=pl.UInt8),
            "b": [b"\xff", None, b""],
        }
    )
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=2)
    Store.at(address).put(tmp_path / "a.parquet", "in/a.parquet")
    here, there = st.parquet(tmp_path), st.parquet(within(address, "in"))
    assert there.schema() == here.schema()
    for columns in (frame.columns, ["a.b"], ["s", "n"]):
        rows = [there.read(part).rows.select(columns).collect() for part in there.take(None, 100, None).slices]
        assert pl.concat(rows).equals(pl.read_parquet(tmp_path / "a.parquet").select(columns))


# ── followed ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Followed:
    """A folder of a bucket that is followed, and one checkpoint; each call of `run` is another run."""

    def __init__(self, root: Path, address: str, kind: str) -> None:
        self.store, self.address, self.kind = Store.at(within(address, "in")), within(address, "in"), kind
        self.checkpoint, self.sink = root / "ckpt", st.memory_sink()

    def put(self, name: str, xs: list[int]) -> None:
        self.store.write(f"{name}.{self.kind}", content(self.kind, xs))

    def engine(self, rows: int = 1000) -> Engine:
        numbers = st.source("numbers", MAKE[self.kind](self.address, schema=COLUMNS, follow=True))
        plan = st.Query("followed", numbers.to(self.sink)).plan(buckets=4)
        options = Options(1, rows_per_epoch=rows, durability=Durability(), patience=60.0)
        engine = Engine(plan, Checkpoint(self.checkpoint), lambda epoch: execute(plan, epoch), options)
        engine.begin()
        return engine

    def run(self, rows: int = 1000) -> list[int]:
        """Read until there is nothing new; give all numbers that the sink has now."""
        engine = self.engine(rows)
        self.work(engine)
        return self.stop(engine)

    def work(self, engine: Engine) -> None:
        for _ in range(1000):
            if not engine.has_work():
                return
            engine.run()
        raise AssertionError("it never ends")

    def stop(self, engine: Engine) -> list[int]:
        self.events = [text for _, text in engine.events]
        self.state = engine.manifest.sources.get("numbers", SourceState())
        engine.close()
        return self.sink.rows()["x"].to_list() if self.sink.epochs else []


@pytest.fixture
def followed(tmp_path: Path, address: str, kind: str) -> Followed:
    return Followed(tmp_path, address, kind)


def test_every_file_is_read_once_whatever_its_name(followed: Followed) -> None:
    chance, n = random.Random(3), 0
    for _ in range(4):
        for _ in range(chance.randrange(4)):
            followed.put(f"part-{chance.randrange(10**9):09d}", list(range(n, n + (rows := chance.randrange(5)))))
            n += rows
        got = followed.run(rows=chance.choice([1, 3, 1000]))
    assert sorted(got) == list(range(n))
    assert followed.events == []
    assert followed.state.accepted == n


def test_what_has_changed_since_it_was_read_is_said_once(followed: Followed) -> None:
    followed.put("a", [1, 2])
    followed.put("b", [3])
    assert sorted(followed.run()) == [1, 2, 3]
    followed.put("a", [4, 5])
    assert sorted(followed.run()) == [1, 2, 3]
    (said,) = followed.events
    assert f"in/a.{followed.kind} was written again" in said
    assert "hush" not in said
    followed.run()
    assert followed.events == []
    assert followed.state.files == {"read": 1, "changed": 1, "gone": 0}


def test_what_is_gone_before_it_was_read_is_said(followed: Followed) -> None:
    for i, name in enumerate("abc"):
        followed.put(name, [i, i])
    engine = followed.engine(rows=2)
    assert engine.has_work()
    engine.run()
    followed.store.delete(f"c.{followed.kind}")
    followed.work(engine)
    assert sorted(followed.stop(engine)) == [0, 0, 1, 1]
    assert [f"in/c.{followed.kind} is gone and was not read" in text for text in followed.events] == [True]
    assert followed.state.files["gone"] == 1
    followed.put("c", [2])
    assert sorted(followed.run()) == [0, 0, 1, 1, 2]
    assert followed.state.files["gone"] == 0


def test_what_is_replaced_while_it_is_read_is_said_and_the_rest_of_it_is_not_read(followed: Followed) -> None:
    followed.put("a", list(range(10, 90)))
    engine = followed.engine(rows=4)
    assert engine.has_work()
    engine.run()
    followed.put("a", list(range(20, 100)))
    followed.put("b", [3])
    followed.work(engine)
    assert followed.stop(engine) == [10, 11, 12, 13, 3]
    assert "while it was read: a file is read once" in followed.events[0]
    assert followed.state.files == {"read": 1, "changed": 1, "gone": 0}


@pytest.mark.parametrize("seed", range(4))
def test_a_store_that_misbehaves(tmp_path: Path, seed: int) -> None:
    """Answers get lost, listings are behind: each file is read once all the same."""
    chance, n = random.Random(seed), 0
    with served(bucket=Misbehaving(seed, trouble=0.3)):
        followed = Followed(tmp_path, "fake://bucket", chance.choice(["csv", "parquet"]))
        for _ in range(5):
            for _ in range(chance.randrange(4)):
                followed.put(f"{chance.randrange(10**6)}", list(range(n, n + 3)))
                n += 3
            followed.run(rows=chance.choice([1, 2, 1000]))
        for _ in range(100):
            if len(got := followed.run()) == n:
                break
    assert sorted(got) == list(range(n))


def test_no_secret_is_written_down(tmp_path: Path, s3: str) -> None:
    followed = Followed(tmp_path, s3, "parquet")
    followed.put("a", [1, 2])
    followed.run(rows=1)
    written = [f for f in tmp_path.rglob("*") if f.is_file()]
    assert written
    assert not [f for f in written if b"hush-hush" in f.read_bytes()]
    source = st.parquet(within(s3, "in"), schema=COLUMNS)
    assert "hush-hush" not in f"{source.describe()} {source!r}"
    assert source.describe() == f"parquet {s3.partition('?')[0]}/in"


# ── refused ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_options_beside_the_address(s3: str, s3_server: str, drain: Drain, kind: str) -> None:
    Store.at(s3).write(f"in/a.{kind}", content(kind, [7]))
    options = {"endpoint_override": s3_server, "scheme": "http", "access_key": "tester", "secret_key": "hush-hush"}
    plain = s3.partition("?")[0]
    assert read(MAKE[kind](f"{plain}/in", schema=COLUMNS, storage_options=options), drain) == [7]


def test_options_from_the_environment(s3: str, s3_server: str, drain: Drain, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.at(s3).write("in/a.parquet", content("parquet", [7]))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{s3_server}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    assert read(st.parquet(f"{s3.partition('?')[0]}/in"), drain) == [7]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("hdfs://host/in", r"step \(csv\): hdfs://host/in .*; use a folder"),
        ("s3:///in", r"no bucket; .*s3://BUCKET/FOLDER"),
        ("s3://bucket/in/a?.csv", r"\? in s3://bucket/in/a .*option; .* \* in a pattern"),
        ("s3://bucket/a#b", r"#.*; write %23"),
        (Path("s3://bucket/a"), r"address.*; .*a string"),
    ],
)
def test_addresses_that_mean_nothing_are_refused_when_the_query_is_built(path: Any, said: str) -> None:
    with pytest.raises(st.QueryError, match=said):
        st.csv(path, schema=COLUMNS)


def test_options_of_a_folder_are_refused() -> None:
    with pytest.raises(st.QueryError, match=r"in/ .*; leave storage_options out"):
        st.csv("in/", schema=COLUMNS, storage_options={"region": "r"})


def test_a_bucket_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path, s3: str, kind: str) -> None:
    missing = s3.replace("bucket-", "missing-")
    with pytest.raises(
        st.QueryError, match=r"step numbers \(source\): s3://missing-.* cannot list .*(bucket|Bucket)"
    ) as caught:
        Followed(tmp_path, missing, kind).run()
    assert "hush-hush" not in str(caught.value)
    if kind == "parquet":
        with pytest.raises(st.QueryError, match=r"step numbers \(source\): s3://missing-.* cannot list"):
            st.source("numbers", st.parquet(within(missing, "in")))
