"""A test suite that every source must pass: ours and yours."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import polars as pl

from springtide.connectors import MISFIT, POSITION, UNLIMITED, Feed, Lineage, Owner, Read, Slice, Source, Take
from springtide.query.ids import Generation
from springtide.query.plurals import plural
from springtide.query.source import source as begin
from springtide.runtime.failpoints import PLACES
from springtide.runtime.query import Query
from springtide.sinks.memory import memory_sink
from springtide.testing.runs import Runs, told

MakeSource = Callable[[], Source]
_TAKES = 100_000
"""A source that has not reached its end after this many takes never will."""


def check_source(
    make_source: MakeSource, *, rows: int | None = None, ts: str | None = None, secrets: tuple[str, ...] = ()
) -> pl.DataFrame:
    """Assert that a source returns the same rows however its input is cut, whoever reads it and whatever is killed; return the rows.

    `make_source()` returns a new source object for the same input, with at least a few rows; if the input has no end, only the rows that are
    there now count. `rows` is their number, including rejected ones. `ts` is the column with the event time, if the query has one;
    `secrets` are strings that must not appear anywhere.

    The input is taken in cuts of all sizes, by a new run after every epoch; slices are read twice, in a different order, by a copy of the source as
    workers get it, and from their form in a commit record; queries are killed at every step of a commit.

    >>> check_source(lambda: st.memory([{"x": 1}, {"x": 2}, {"x": 3}]), rows=3)["x"].to_list()
    [1, 2, 3]
    """
    suite = _Suite(make_source, ts, secrets)
    told("shape", suite.shape)
    told("read at once", partial(suite.whole, rows))
    most = len(suite.expected)
    for limit in sorted({1, 2, 3, 5, 7, most - 1, most} & set(range(1, most + 1))):
        told(f"cut into epochs of about {plural(limit, 'row')}, with a new run after each", partial(suite.cut, limit))
    told("slices that are read again", suite.again)
    told("read_all", suite.all_at_once)
    with tempfile.TemporaryDirectory(prefix="springtide-check-") as folder:
        told("a run", partial(suite.run, Path(folder) / "run"))
        for place in PLACES:
            told(f"killed at {place!r}", partial(suite.killed, Path(folder) / place, place))
    return suite.frame


Row = tuple[str, int, int]
"""The physical stream, the position, and the row's number among those with the same position."""


@dataclass
class _Suite:
    make: MakeSource
    ts: str | None
    secrets: tuple[str, ...]
    expected: dict[Row, Any] = field(default_factory=dict)
    frame: pl.DataFrame = field(default_factory=pl.DataFrame)
    slices: list[Slice] = field(default_factory=list)

    # ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def shape(self) -> None:
        source = self.make()
        assert isinstance(source, Source), f"{type(source).__name__} does not derive from springtide.connectors.Source"
        assert (lacking := source.incomplete()) is None, lacking
        self._hidden(f"{source.describe()} {source!r}", "describe() or repr()")
        copy = cloudpickle.loads(cloudpickle.dumps(source))
        assert copy.schema() == source.schema(), "its copy for the workers has other columns"

    def whole(self, rows: int | None) -> None:
        source, frames = self.make(), list[pl.DataFrame]()
        with _opened(source) as feed:
            for take in self._takes(source, feed, UNLIMITED):
                self.slices.extend(take.slices)
                for part in take.slices:
                    read = source.read(part)
                    self._add(self.expected, source, part, read)
                    frames.append(read.rows.collect().select(list(source.schema())))
        self.frame = pl.concat([pl.DataFrame(schema=source.schema()), *frames])
        assert self.expected, "there are no rows: give the source some, or nothing is checked"
        assert rows is None or len(self.expected) == rows, f"there are {plural(len(self.expected), 'row')}, not {rows}"

    def cut(self, limit: int) -> None:
        found: dict[Row, Any] = {}
        source = self.make()
        position = source.beginning
        for _ in range(_TAKES):
            with _opened(source) as feed:
                take = self._checked(source, feed.take(position, limit, self.ts))
            for part in take.slices:
                self._add(found, source, part, source.read(part))
            if take.ended or not take.slices:
                break
            position = json.loads(json.dumps(_bare(take.position)))
        self._same(found)

    def again(self) -> None:
        source = self.make()
        copy = cloudpickle.loads(cloudpickle.dumps(source))
        readers = [("read twice", source, False), ("read by a worker's copy", copy, False)]
        if source.replayable:
            readers.append(("read from a commit record", copy, True))
        for what, reader, written in readers:
            found: dict[Row, Any] = {}
            for part in reversed(self.slices):
                given = replace(part, data=json.loads(json.dumps(part.data))) if written else part
                self._add(found, reader, part, reader.read(given))
            told(what, partial(self._same, found))

    def all_at_once(self) -> None:
        streams = self.make().read_all()
        count = sum(len(rows) for rows in streams.values())
        assert count == len(self.expected), f"it returned {plural(count, 'row')}, not {len(self.expected)}"

    def run(self, root: Path) -> None:
        self._run_to_the_end(root, None)
        found = [
            f.name for f in root.rglob("*") if f.is_file() and any(s.encode() in f.read_bytes() for s in self.secrets)
        ]
        assert not found, f"a secret is in the checkpoint: {found[0]}"

    def killed(self, root: Path, place: str) -> None:
        self._run_to_the_end(root, place)

    # ── what they share ───────────────────────────────────────────────────────────────────────────────────────────

    def _run_to_the_end(self, root: Path, place: str | None) -> None:
        out, late, wrong, runs = (
            memory_sink(),
            memory_sink(),
            memory_sink(),
            Runs(root, max(1, len(self.expected) // 3)),
        )

        def query() -> Query:
            stream = begin("checked", self.make(), ts=self.ts)
            sinks = [stream.to(out, name="out"), stream.rejected.to(wrong, name="rejected")]
            return Query("checked", *sinks, *([stream.late.to(late, name="late")] if self.ts is not None else []))

        if place is not None:
            runs.run_killed(query(), place, 2 if len(self.expected) > 1 else 1)
        runs.run(query())
        count = sum(sink.rows().height for sink in (out, late, wrong))
        assert count == len(self.expected), f"the query had {plural(count, 'row')}, not {len(self.expected)}"

    def _takes(self, source: Source, feed: Feed, limit: int) -> Iterator[Take]:
        position = source.beginning
        for _ in range(_TAKES):
            take = self._checked(source, feed.take(position, limit, self.ts))
            yield take
            if take.ended or not take.slices:
                return
            position = take.position
        raise AssertionError(
            f"it has not come to an end after {_TAKES} takes: give it an input that ends, or stands still"
        )

    def _checked(self, source: Source, take: Take) -> Take:
        try:
            plain = json.dumps(_bare(take.position))
        except TypeError as error:
            raise AssertionError(f"the position is not plain JSON: {error}") from None
        self._hidden(
            f"{plain} {take.notes} {[p.data for p in take.slices] if source.replayable else ''}",
            "a position, a note or Slice.data",
        )
        known = set(take.streams)
        for part in take.slices:
            assert not known or part.stream in known, f"Take.streams lacks {part.stream!r}"
            assert part.rows > 0, "a slice has no rows: leave it out"
            if source.replayable:
                _assert_plain(part.data)
        return take

    def _add(self, found: dict[Row, Any], source: Source, part: Slice, read: Read) -> None:
        frame, columns = read.rows.collect(), source.schema()
        own = frame.drop(POSITION, MISFIT, strict=False)
        assert own.schema == columns, f"rows have the columns {dict(own.schema)}, not {dict(columns)}"
        count = frame.height + len(read.rejected)
        assert not part.exact or count == part.rows, (
            f"a slice of {plural(part.rows, 'row')} has {count}: say exact=False if that is right"
        )
        places = (
            frame[POSITION].to_list()
            if POSITION in frame.columns
            else range(part.position, part.position + frame.height)
        )
        assert all(a <= b for a, b in zip(places, list(places)[1:], strict=False)), (
            "rows are not in the order of their positions"
        )
        wrong = frame[MISFIT].to_list() if MISFIT in frame.columns else [None] * frame.height
        rows = [
            (p, reason if reason is not None else row) for p, reason, row in zip(places, wrong, own.rows(), strict=True)
        ]
        for rejected in read.rejected:
            assert {"position", "reason", "row"} <= rejected.keys(), (
                f"a rejected row has no position, reason or row: {rejected}"
            )
            rows.append((rejected["position"], rejected["reason"]))
        for position, row in rows:
            key, turn = (part.stream, position), 0
            while (*key, turn) in found:
                turn += 1
            assert turn == 0 or source.repeats or not source.positions, (
                f"position {position} of {part.stream!r} came twice"
            )
            found[*key, turn] = row

    def _same(self, found: Mapping[Row, Any]) -> None:
        missing, extra = self.expected.keys() - found.keys(), found.keys() - self.expected.keys()
        assert not missing, (
            f"{plural(len(missing), 'row')} missing, such as {min(missing)[:2]} (physical stream, position)"
        )
        assert not extra, f"{plural(len(extra), 'row')} too many, such as {min(extra)[:2]} (physical stream, position)"
        other = [key for key, row in self.expected.items() if not _alike(found[key], row)]
        assert not other, (
            f"{other[0][:2]} (physical stream, position) is {found[other[0]]}, and was {self.expected[other[0]]}"
        )

    def _hidden(self, text: str, where: str) -> None:
        assert not any(secret in text for secret in self.secrets), f"{where} shows a secret"


def _alike(one: Any, other: Any) -> bool:
    return bool(one == other) or repr(one) == repr(other)  # NaN does not equal itself


def _assert_plain(data: Any) -> None:
    try:
        json.dumps(data)
    except TypeError as error:
        raise AssertionError(f"Slice.data is not plain JSON ({error}): make it so, or say replayable = False") from None


def _bare(position: Any) -> Any:
    """Leave out what a run keeps next to a ledger of files: it is not written."""
    if isinstance(position, dict) and isinstance(position.get("ledger"), dict):
        return position | {"ledger": {k: v for k, v in position["ledger"].items() if k != "base"}}
    return position


@contextmanager
def _opened(source: Source) -> Iterator[Feed]:
    feed = source.open(
        Owner("checked", "checked", Lineage("c" * 32), Generation(1), kind="source", schema=source.schema())
    )
    try:
        yield feed
    finally:
        feed.close()
