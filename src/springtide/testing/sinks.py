"""A test suite that every sink must pass: ours and yours."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import polars as pl

from springtide.connectors import Lineage, Owner, Publication, Sink
from springtide.query.errors import SinkError, SpringtideError
from springtide.query.ids import EpochNumber, Generation
from springtide.query.source import source
from springtide.query.types import TIME
from springtide.runtime.query import Query
from springtide.sources.memory import memory
from springtide.state.copying import restore
from springtide.state.names import MANIFESTS
from springtide.testing.runs import Runs, told

MakeSink = Callable[[str], Sink]
ReadRows = Callable[[str], pl.DataFrame]

_ROWS, _PER_EPOCH = 9, 3
_EPOCHS = _ROWS // _PER_EPOCH
_ALL = list(range(_ROWS))


def check_sink(
    make_sink: MakeSink, read_rows: ReadRows, *, exactly_once: bool = True, secrets: tuple[str, ...] = ()
) -> None:
    """Assert that a sink delivers every row and, if it is `exactly_once`, that none is ever delivered twice.

    `make_sink(name)` returns a new sink object for a target with that name: a folder, a table, a topic. Each part of the suite has its own
    targets, and the same name means the same target. `read_rows(name)` returns the rows that are there, with the columns `ts` and `x` (an i64).

    Queries are stopped, and killed at every step of a commit and at every `failpoint` of the sink; the same rows are delivered again; the newest
    commit record is deleted; another query, another checkpoint, an older epoch and a run that was taken over write to the same target.
    `secrets` are strings that must not appear anywhere. A sink that is not `exactly_once` may receive the last epoch again after a kill.

    >>> sinks = {}
    >>> check_sink(lambda name: sinks.setdefault(name, st.memory_sink()), lambda name: sinks[name].rows())
    """
    with tempfile.TemporaryDirectory(prefix="springtide-check-") as folder:
        _Suite(make_sink, read_rows, Path(folder), exactly_once, secrets).run()


class _Suite:
    """The parts of the suite; each uses a new target and new checkpoints."""

    def __init__(
        self, make: MakeSink, read: ReadRows, folder: Path, exactly_once: bool, secrets: tuple[str, ...]
    ) -> None:
        self._make, self._read, self._folder, self._once, self._secrets = make, read, folder, exactly_once, secrets
        self._numbers = count(1)

    def run(self) -> None:
        told("shape", self._shape)
        told("stopped after every epoch and started again", self._stopped)
        for place, visits in self._places().items():
            for visit in sorted({1, visits}):
                told(f"killed at {place!r}, visit {visit}", partial(self._killed, place, visit))
        told("the record of the last commit is deleted", self._manifest_gone)
        if self._once:
            told("an epoch that is given again", self._given_again)
            told("a run that was taken over", self._taken_over)
            told("rows of another checkpoint", self._another_checkpoint)
            told("a checkpoint that was restored at an older epoch", self._restored)
            told("two sinks of one query in one place", self._two_in_one)

    # ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _shape(self) -> None:
        sink = self._make(self._target())
        assert isinstance(sink, Sink), f"{type(sink).__name__} does not derive from springtide.connectors.Sink"
        assert (lacking := sink.incomplete()) is None, lacking
        cloudpickle.loads(cloudpickle.dumps(sink.outbox))
        shown = f"{sink.describe()} {sink!r}"
        assert not any(secret in shown for secret in self._secrets), "describe() or repr() shows a secret"

    def _stopped(self) -> None:
        target, runs = self._target(), self._runs()
        for _ in range(_EPOCHS + 1):
            runs.run(self._query(target), 1)
        self._complete(target, clean=True)
        found = [
            f for f in runs.root.rglob("*") if f.is_file() and any(s.encode() in f.read_bytes() for s in self._secrets)
        ]
        assert not found, f"a secret is in the checkpoint: {found[0].name}"

    def _places(self) -> dict[str, int]:
        target = self._target()
        places = self._runs().visits(self._query(target))
        self._complete(target, clean=True)
        return dict(places)

    def _killed(self, place: str, visit: int) -> None:
        target, runs = self._target(), self._runs()
        runs.run_killed(self._query(target), place, visit)
        runs.run(self._query(target))
        self._complete(target, clean=False)

    def _manifest_gone(self) -> None:
        target, runs = self._target(), self._runs()
        runs.run(self._query(target), 2)
        before, kept = self._rows(target), self._folder / f"kept-{target}"
        newest = sorted((runs.root / MANIFESTS).iterdir())[-1]
        shutil.move(newest, kept)
        self._refused(lambda: runs.run(self._query(target)), "lost the manifest")
        assert self._rows(target) == before, "rows came though the run was refused"
        shutil.move(kept, newest)
        runs.run(self._query(target))
        self._complete(target, clean=True)

    def _given_again(self) -> None:
        target, owner = self._target(), self._owner("a")
        given = self._publication(owner, 0, [0, 1, 2])
        for generation in (1, 2):
            sink = self._make(target)
            now = replace(
                owner,
                generation=Generation(generation),
                epoch=EpochNumber(generation - 2),
                commit=given.commit if generation > 1 else None,
            )
            sink.admit(now)
            writer = sink.open(now)
            writer.publish(given)
            writer.publish(given)
            writer.close()
        assert self._rows(target) == [0, 1, 2], f"there are {self._rows(target)}, not [0, 1, 2] once"

    def _taken_over(self) -> None:
        target, owner = self._target(), self._owner("b")
        old = self._make(target).open(owner)
        old.publish(self._publication(owner, 0, [0]))
        new_owner = replace(owner, generation=Generation(2), epoch=EpochNumber(0))
        sink = self._make(target)
        sink.admit(new_owner)
        new = sink.open(new_owner)
        new.publish(self._publication(owner, 1, [1]))
        try:
            old.publish(self._publication(owner, 1, [1], attempt="of the old run"))
        except SinkError:
            pass
        else:
            if old is not new:  # except for a sink in memory, which is a single object
                raise AssertionError(
                    "the old run was let in: a writer whose target was claimed by a newer one must raise a SinkError"
                )
        finally:
            with suppress(SinkError):
                old.close()
            new.close()
        assert self._rows(target) == [0, 1], f"there are {self._rows(target)}, not [0, 1]"

    def _another_checkpoint(self) -> None:
        target, first = self._target(), self._runs()
        first.run(self._query(target), 2)
        before = self._rows(target)
        for name in ("checked", "another"):
            self._refused(partial(self._runs().run, self._query(target, name)), "")
            assert self._rows(target) == before, "rows came though the run was refused"
        first.run(self._query(target))
        self._complete(target, clean=True)

    def _restored(self) -> None:
        target, first, second, third = self._target(), self._runs(), self._runs(), self._runs()
        first.run(self._query(target), 2)
        restore(first.root, second.root, at=0)
        self._refused(lambda: second.run(self._query(target)), "")
        restore(first.root, third.root)
        third.run(self._query(target))
        self._complete(target, clean=True)
        self._refused(lambda: first.run(self._query(target)), "")
        self._complete(target, clean=True)

    def _two_in_one(self) -> None:
        target = self._target()
        one, two = self._make(target), self._make(target)
        place = one.place
        assert place is not None, (
            "define `place`, so that a query with two sinks for one target is refused when it is built"
        )
        assert two.place == place, f"the same target has two places: {place} and {two.place}"
        assert self._make(self._target()).place != place, f"two targets have one place: {place}"

    # ── what they share ───────────────────────────────────────────────────────────────────────────────────────────

    def _target(self) -> str:
        return f"target{next(self._numbers)}"

    def _runs(self) -> Runs:
        return Runs(self._folder / f"checkpoint{next(self._numbers)}", _PER_EPOCH)

    def _query(self, target: str, name: str = "checked") -> Query:
        rows = pl.DataFrame({"ts": pl.Series(_ALL) * 1_000_000, "x": _ALL}).with_columns(pl.col("ts").cast(TIME))
        stream = source("numbers", memory(rows), ts="ts")
        return Query(name, stream.to(self._make(target), name="out"))

    def _owner(self, id: str) -> Owner:
        return Owner("checked", "out", Lineage(id * 32), Generation(1), schema=pl.Schema({"ts": TIME, "x": pl.Int64()}))

    def _publication(self, owner: Owner, epoch: int, xs: list[int], attempt: str = "") -> Publication:
        outbox = self._make(self._target()).outbox
        path = self._folder / f"outbox{next(self._numbers)}{attempt.replace(' ', '-')}{outbox.suffix}"
        rows = pl.DataFrame({"ts": pl.Series(xs, dtype=pl.Int64).cast(TIME), "x": pl.Series(xs, dtype=pl.Int64)})
        outbox.write(rows, path)
        return Publication(
            owner.name,
            EpochNumber(epoch),
            rows.schema,
            (path,),
            (len(xs),),
            query=owner.query,
            checkpoint=owner.lineage.id,
        )

    def _rows(self, target: str) -> list[int]:
        rows = self._read(target)
        return sorted(rows["x"].to_list()) if rows.width else []

    def _complete(self, target: str, *, clean: bool) -> None:
        """Assert that all rows are there exactly once; after a kill, the last epoch may be there twice unless the sink is exactly-once."""
        rows = self._rows(target)
        missing = sorted(set(_ALL) - set(rows))
        assert not missing, f"rows are missing: {missing}"
        twice = sorted({x for x in rows if rows.count(x) > 1})
        if self._once or clean:
            assert not twice, f"rows came twice: {twice}"
        assert len(rows) <= _ROWS + _PER_EPOCH, f"more than one epoch came twice: {twice}"

    def _refused(self, run: Callable[[], object], words: str) -> None:
        try:
            run()
        except SpringtideError as refusal:
            if words not in str(refusal):
                raise
        else:
            raise AssertionError("it was not refused")
