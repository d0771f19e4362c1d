"""Every kind of sink, with what it was given: for tests of what becomes of sinks over several runs."""

from __future__ import annotations

import io
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import execute
from springtide.state.checkpoint import Checkpoint
from springtide.state.stores import Store
from tests.stores.misbehaving import Misbehaving, served
from tests.unit.runtime.crashing import SCHEMA, numbers

ROWS, PER_EPOCH = 12, 3
EPOCHS = ROWS // PER_EPOCH


class Died(BaseException):
    """The process is gone: nothing of what it would have done comes."""


class Sink:
    """A sink, and all that ever came to it: epoch → rows, each time it came."""

    remembers = False
    """It knows what it has: rows never come twice, and what is another's is refused."""

    def __init__(self, folder: Path) -> None:
        self.given: list[tuple[int, list[int]]] = []

    def connector(self) -> Any:
        raise NotImplementedError

    def rows(self) -> list[int]:
        """All rows that came, as often as they came."""
        return sorted(x for _, xs in self.given for x in xs)

    def rows_once(self) -> list[int]:
        """All rows for somebody who knows epochs by their numbers; the same number must be the same rows."""
        by_epoch: dict[int, list[int]] = {}
        for epoch, xs in self.given:
            assert by_epoch.setdefault(epoch, xs) == xs, f"epoch {epoch} came with other rows"
        return sorted(x for xs in by_epoch.values() for x in xs)

    def consume(self) -> None:
        """Take away what is there."""


class Folder(Sink):
    """A Parquet folder."""

    remembers = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "out"

    def connector(self) -> Any:
        return st.parquet_sink(self.path)

    def rows(self) -> list[int]:
        there = [pl.read_parquet(f)["x"].to_list() for f in sorted(self.path.glob("part-*.parquet"))]
        return sorted([*super().rows(), *(x for xs in there for x in xs)])

    def rows_once(self) -> list[int]:
        return self.rows()

    def consume(self) -> None:
        for file in sorted(self.path.glob("part-*.parquet")):
            self.given.append((int(file.name.split("-")[1]), pl.read_parquet(file)["x"].to_list()))
            file.unlink()


class Table(Sink):
    """A table of a database: rows and the ledger are one transaction."""

    remembers = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "rows.db"

    def connector(self) -> Any:
        return st.database_sink(partial(sqlite3.connect, self.path), "numbers", create=True)

    def rows(self) -> list[int]:
        with closing(sqlite3.connect(self.path)) as database:
            there = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'numbers'").fetchone()
            return [x for (x,) in database.execute("SELECT x FROM numbers ORDER BY x")] if there else []

    rows_once = rows


class InStore(Sink):
    """Parquet files in an object store. Whoever takes some away leaves those that the newest record names."""

    remembers = True

    def __init__(self, folder: Path, address: str, seen_at: str | None = None) -> None:
        super().__init__(folder)
        self.address, self.store = address, Store.at(seen_at or address)

    def connector(self) -> Any:
        return st.parquet_sink(self.address)

    def there(self) -> list[str]:
        return [f for f in self.store.list() if f.endswith(".parquet")]

    def numbers(self, file: str) -> list[int]:
        return pl.read_parquet(io.BytesIO(self.store.read(file)))["x"].to_list()

    def rows(self) -> list[int]:
        return sorted([*super().rows(), *(x for f in self.there() for x in self.numbers(f))])

    def rows_once(self) -> list[int]:
        return self.rows()

    def consume(self) -> None:
        records = [f for f in self.store.list("_springtide") if f.endswith(".json")]
        on_their_way = json.loads(self.store.read(max(records)))["files"] if records else []
        for file in set(self.there()) - set(on_their_way):
            self.given.append((int(file.rpartition("/")[2].split("-")[1]), self.numbers(file)))
            self.store.delete(file)


class Memory(Sink):
    """Rows kept in memory."""

    remembers = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sink = st.memory_sink()

    def connector(self) -> Any:
        return self.sink

    def rows(self) -> list[int]:
        return sorted(self.sink.rows()["x"].to_list()) if self.sink.epochs else []

    rows_once = rows


class Function(Sink):
    """A function; what it holds cannot be pickled."""

    def connector(self) -> Any:
        def keep(rows: pl.DataFrame, epoch: int) -> None:
            self.given.append((epoch, rows["x"].to_list()))

        return st.callback(keep)


class OfSpark(Sink):
    """A function that gets what Spark reads; the session is made up."""

    def connector(self) -> Any:
        def keep(rows: Any, epoch: int) -> None:
            self.given.append((epoch, pl.concat([pl.read_parquet(f) for f in rows])["x"].to_list()))

        return st.spark_sink(keep)


class MadeUp:
    """As much of a Spark session as a sink needs."""

    @property
    def read(self) -> MadeUp:
        return self

    def schema(self, _: Any) -> MadeUp:
        return self

    def parquet(self, *files: str) -> list[str]:
        return list(files)


class Screen(Sink):
    """The console: rows are shown, and counted by what is said of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.text = io.StringIO()

    def connector(self) -> Any:
        sink = st.console()
        text = self.text

        @dataclass(frozen=True)
        class Shown(type(sink)):  # type: ignore[misc]
            def publish(self, publication: Any) -> None:
                with redirect_stdout(text):
                    super().publish(publication)

        return Shown(sink.rows)

    def rows(self) -> list[int]:
        parts = re.split(r"epoch (\d+), out: \d+ rows\n", self.text.getvalue())[1:]
        self.given = [
            (int(epoch), [int(n) for n in re.findall(r"┆ (\d+) ", table)])
            for epoch, table in zip(parts[::2], parts[1::2], strict=True)
        ]
        return super().rows()

    def rows_once(self) -> list[int]:
        self.rows()
        return super().rows_once()


KINDS: dict[str, Callable[[Path], Sink]] = {
    "parquet": Folder,
    "database": Table,
    "memory": Memory,
    "callback": Function,
    "spark": OfSpark,
    "console": Screen,
}


IN_STORES = ("s3", "store", *(f"misbehaving-{seed}" for seed in range(2)))
"""Kinds of stores that Parquet files can be in."""


@contextmanager
def stored(kind: str, folder: Path, s3: Callable[[], str]) -> Iterator[InStore]:
    """Have such a sink in a store: a server's, one in this process, or one that misbehaves."""
    if kind == "s3":
        yield InStore(folder, s3().replace("?", "/out?"))
        return
    seed = int(kind.partition("-")[2] or 0)
    bucket = Misbehaving(seed, trouble=0.0 if kind == "store" else 0.2)
    with served(bucket=bucket, view=Misbehaving(trouble=0.0, lag=0, files=bucket.files)):
        yield InStore(folder, "fake://bucket/out", "fake://view/out")


def query_of(sink: Any, rows: int = ROWS, name: str = "past") -> st.Query:
    """Make the query that is run: numbers to the sink."""
    source = st.source("numbers", st.memory(numbers(rows), schema=SCHEMA), ts="ts")
    return st.Query(name, source.to(sink, name="out"))


@dataclass
class Runs:
    """Runs of a query on a checkpoint, in this process; each may be stopped or die."""

    root: Path
    durability: st.Durability = field(default_factory=st.Durability)

    def run(self, query: st.Query, epochs: int | None = None, between: Callable[[], None] = lambda: None) -> None:
        """Run to the end, or so many epochs, and stop; `between` is called after each."""
        plan = query.plan(buckets=2)
        options = Options(1, rows_per_epoch=PER_EPOCH, durability=self.durability)
        engine: Engine | None = None
        try:
            engine = Engine(plan, Checkpoint(self.root), lambda epoch: execute(plan, epoch), options)
            engine.begin()
            while not engine.manifest.ended and (epochs is None or epochs > 0):
                assert engine.has_work()
                engine.run()
                between()
                epochs = None if epochs is None else epochs - 1
            engine.close()
        except Died:
            if engine is not None:
                engine.storage.lease.release()  # as the system does with what a process had open
        except BaseException:
            if engine is not None:
                engine.close()
            raise
