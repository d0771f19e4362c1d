"""What all sources of files have in common: order, positions, limits, and what is new."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import springtide as st
from springtide.connectors import Slice
from springtide.query.types import END_OF_TIME
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.runtime.planning import assign_slices
from springtide.sources import parquet
from springtide.sources.files import FileSource
from springtide.testing import compare
from tests.unit.sources.conftest import Drain

COLUMNS = {"x": pl.Int64}
Write = Callable[[Path, list[int]], None]


def write_csv(path: Path, xs: list[int]) -> None:
    path.write_text("x\n" + "".join(f"{x}\n" for x in xs))


def write_json(path: Path, xs: list[int]) -> None:
    path.write_text("".join(json.dumps({"x": x}) + "\n" for x in xs))


def write_parquet(path: Path, xs: list[int]) -> None:
    pl.DataFrame({"x": xs}, schema=COLUMNS).write_parquet(path, row_group_size=3)


KINDS: dict[str, tuple[Callable[..., FileSource], Write]] = {
    "csv": (st.csv, write_csv),
    "json": (st.json, write_json),
    "parquet": (st.parquet, write_parquet),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path, kind: str) -> Path:
    """Files a, b and c with the numbers 0 to 9; b has none."""
    for name, xs in {"b": [], "c": [6, 7, 8, 9], "a": [0, 1, 2, 3, 4, 5]}.items():
        KINDS[kind][1](tmp_path / f"{name}.{kind}", xs)
    (tmp_path / "notes.txt").write_text("not for us")
    (tmp_path / f"_hidden.{kind}").write_text("not for us")
    (tmp_path / f".hidden.{kind}").write_text("not for us")
    (tmp_path / f"sub.{kind}").mkdir()
    return tmp_path


def source(kind: str, path: Any, **options: Any) -> FileSource:
    return KINDS[kind][0](path, schema=COLUMNS, **options)


def test_files_in_the_order_of_their_names(kind: str, folder: Path, drain: Drain) -> None:
    got = drain(source(kind, folder))
    assert got.values("x") == list(range(10))
    assert list(got.rows) == list(range(10))


def test_one_file_or_a_pattern(kind: str, folder: Path, drain: Drain) -> None:
    assert drain(source(kind, folder / f"c.{kind}")).values("x") == [6, 7, 8, 9]
    assert drain(source(kind, f"{folder}/[ab].{kind}")).values("x") == [0, 1, 2, 3, 4, 5]
    odd = folder / f"d[1].{kind}"
    KINDS[kind][1](odd, [5])
    assert drain(source(kind, odd)).values("x") == [5]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 9, 10, 11])
def test_every_limit(kind: str, folder: Path, drain: Drain, limit: int) -> None:
    got = drain(source(kind, folder), limit)
    assert got.values("x") == list(range(10))
    assert [t.backlog for t in got.takes][-1] == 0
    for take in got.takes:
        assert take.streams == ("0",)
        assert take.times == ({"0": END_OF_TIME} if take.ended else {})
        assert take.ended == (take is got.takes[-1])


def test_the_position_is_plain_and_enough_to_go_on(kind: str, folder: Path, drain: Drain) -> None:
    first = source(kind, folder).take(None, 4, None)
    nothing = {"read": 0, "changed": 0, "gone": 0, "recent": []}
    size = (folder / f"a.{kind}").stat().st_size
    assert first.position == {"file": f"a.{kind}", "row": 4, "size": size, "rows": 4, "left": 2, "ledger": nothing}
    later = drain(source(kind, folder), 3, position=json.loads(json.dumps(first.position)))
    assert later.values("x") == list(range(4, 10))
    assert list(later.rows) == list(range(4, 10))


def test_a_folder_may_be_moved_or_named_in_another_way(
    kind: str, folder: Path, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = source(kind, folder).take(None, 8, None).position
    monkeypatch.chdir(folder)
    for path in (".", f"*.{kind}", f"../{folder.name}/", f"[a-d].{kind}", f"{folder}/c.{kind}"):
        assert drain(source(kind, path), position=position).rows == {8: {"x": 8}, 9: {"x": 9}}
    moved = folder.rename(folder.with_name(f"0-{kind}"))
    monkeypatch.chdir(moved.parent)
    assert drain(source(kind, moved.name), position=position).rows == {8: {"x": 8}, 9: {"x": 9}}


def test_a_pattern_over_several_folders(kind: str, tmp_path: Path, drain: Drain) -> None:
    for i, day in enumerate(("day=1", "day=2", "day=3")):
        (tmp_path / day).mkdir()
        KINDS[kind][1](tmp_path / day / f"part.{kind}", [2 * i, 2 * i + 1])
    made = source(kind, tmp_path / "day=*" / "part.*")
    assert drain(made, 1).values("x") == list(range(6))
    position = made.take(None, 3, None).position
    assert (position["file"], position["row"], position["rows"], position["left"]) == (f"day=2/part.{kind}", 1, 3, 1)
    assert [r[0] for r in position["ledger"]["recent"]] == [f"day=1/part.{kind}"]
    assert drain(made, position=position).values("x") == [3, 4, 5]


def test_asking_twice_gives_the_same(kind: str, folder: Path) -> None:
    made = source(kind, folder)
    assert made.take(None, 4, None) == made.take(None, 4, None)


def test_nothing_new_is_nowhere_else(kind: str, folder: Path) -> None:
    made = source(kind, folder, follow=True)
    all_of_it = made.take(None, 100, None)
    assert not all_of_it.ended
    assert all_of_it.times == {}
    again = made.take(all_of_it.position, 100, None)
    assert (again.slices, again.position, again.backlog) == ((), all_of_it.position, 0)


def test_new_files_are_picked_up_whatever_their_names(kind: str, folder: Path, drain: Drain) -> None:
    made = source(kind, folder, follow=True)
    position = drain(made).takes[-1].position
    KINDS[kind][1](folder / f"bb.{kind}", [10, 11])
    os.utime(folder / f"bb.{kind}", (2e9, 2e9))
    KINDS[kind][1](folder / f"0.{kind}", [12])
    os.utime(folder / f"0.{kind}", (2e9, 2e9 + 1))
    got = drain(made, position=position)
    assert got.rows == {10: {"x": 10}, 11: {"x": 11}, 12: {"x": 12}}
    assert drain(made, position=got.takes[-1].position).rows == {}


def test_a_file_that_a_listing_has_missed_is_not_passed_over(
    kind: str, folder: Path, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come while the folder is listed, and only the later one is seen."""
    made = source(kind, folder, follow=True)
    position = drain(made).takes[-1].position
    KINDS[kind][1](folder / f"d.{kind}", [10])
    KINDS[kind][1](folder / f"e.{kind}", [11])
    listings, files = iter([True]), type(made).files
    missed = str(folder / f"d.{kind}")
    monkeypatch.setattr(
        type(made), "files", lambda self: [f for f in files(self) if f != missed or not next(listings, False)]
    )
    assert drain(made, position=position).values("x") == [10, 11]


def test_files_may_be_taken_away_once_they_are_read(kind: str, folder: Path, drain: Drain) -> None:
    made = source(kind, folder, follow=True)
    position = drain(made).takes[-1].position
    for name in "abc":
        (folder / f"{name}.{kind}").unlink()
    assert drain(made, position=position).rows == {}
    KINDS[kind][1](folder / f"d.{kind}", [10])
    assert drain(made, position=position).rows == {10: {"x": 10}}


def test_a_folder_may_be_empty_at_first(kind: str, tmp_path: Path, drain: Drain) -> None:
    made = source(kind, tmp_path, follow=True)
    first = made.take(None, 10, None)
    assert (first.slices, first.position, first.ended, first.streams) == ((), None, False, ("0",))
    KINDS[kind][1](tmp_path / f"a.{kind}", [1])
    assert drain(made).values("x") == [1]


def test_an_empty_folder_ends_at_once(kind: str, tmp_path: Path) -> None:
    take = source(kind, tmp_path).take(None, 10, None)
    assert take.ended
    assert take.times == {"0": END_OF_TIME}


def test_a_path_that_is_not_there(kind: str, tmp_path: Path) -> None:
    with pytest.raises(st.SpringtideError, match=f"there is no file {tmp_path}/nowhere; check the path, or wait"):
        source(kind, tmp_path / "nowhere").take(None, 10, None)
    assert source(kind, tmp_path / "nowhere", follow=True).take(None, 10, None).slices == ()


@pytest.mark.parametrize("path", ["", 5, None, ["a"]])
def test_what_is_no_path(kind: str, path: Any) -> None:
    with pytest.raises(st.QueryError, match=f"\\({kind}\\): .* not a path; .*folder"):
        source(kind, path)


def test_it_says_where(kind: str) -> None:
    assert source(kind, Path("in")).describe() == f"{kind} in"
    assert source(kind, "in/", follow=True).describe() == f"{kind} in/, followed"


def test_the_reference_reads_the_same(kind: str, folder: Path, frame_of: Any) -> None:
    assert frame_of(source(kind, folder))["x"].to_list() == list(range(10))
    assert frame_of(source(kind, folder)).schema == pl.Schema(COLUMNS)


def test_it_works_in_a_query_with_time(kind: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    stream = st.source("s", source(kind, folder), ts="x")
    sink = st.memory_sink()
    counted = stream.aggregate(window=st.tumbling("4us"), n=st.count(), last=st.last("ts"))
    query = st.Query("q", counted.to(sink))
    run(query.plan(), tmp_path_factory.mktemp("ckpt"), Options(2, rows_per_epoch=3))
    assert sink.rows()["n"].to_list() == [4, 4, 2]
    assert sink.rows()["last"].cast(pl.Int64).to_list() == [3, 7, 9]


@settings(max_examples=40)
@given(
    some.lists(some.lists(some.integers(0, 99), max_size=7), max_size=4),
    some.lists(some.integers(1, 6), min_size=1, max_size=10),
    some.sampled_from(sorted(KINDS)),
)
def test_any_files_in_any_cuts(files: list[list[int]], limits: list[int], kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for i, xs in enumerate(files):
            KINDS[kind][1](Path(folder) / f"{i}.{kind}", xs)
        made, position, got, ended, turn = source(kind, folder), None, [], False, 0
        while not ended:
            take = made.take(position, limits[turn % len(limits)], None)
            for part in take.slices:
                assert part.position == len(got)
                got += made.read(part).rows.collect()["x"].to_list()
            assert take.backlog >= 0
            assert sum(p.rows for p in take.slices) <= limits[turn % len(limits)]
            position, ended, turn = take.position, take.ended, turn + 1
        assert got == [x for xs in files for x in xs]


# ── files that grow ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_lines_that_are_added_are_read(kind: str, tmp_path: Path, drain: Drain) -> None:
    def line(x: int) -> str:
        return f"{x}" if kind == "csv" else f'{{"x": {x}}}'

    path = tmp_path / f"a.{kind}"
    KINDS[kind][1](path, [0, 1])
    made = source(kind, path, follow=True)
    position = drain(made).takes[-1].position
    with open(path, "a") as file:
        file.write(f"{line(2)}\n{line(3)}")
    got = drain(made, position=position)
    assert got.rows == {2: {"x": 2}}  # the next line has no end yet
    position = got.takes[-1].position
    with open(path, "a") as file:
        file.write(f"\n{line(4)}")
    got = drain(made, position=position)
    assert got.rows == {3: {"x": 3}}
    position = got.takes[-1].position
    KINDS[kind][1](tmp_path / f"b.{kind}", [5])
    more = source(kind, tmp_path, follow=True)
    assert drain(more, position=position).rows == {4: {"x": 4}, 5: {"x": 5}}  # a later file: the line is complete


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_file_that_is_changed_under_the_reader_is_an_error(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    KINDS[kind][1](path, [10, 11, 12])
    made = source(kind, path)
    (part,) = made.take(None, 10, None).slices
    KINDS[kind][1](path, [10])
    with pytest.raises(st.SpringtideError, match=r"was changed while it was read.*3 lines.* 1; "):
        made.read(part)


def test_a_parquet_file_that_is_replaced_under_the_reader_is_an_error(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [10, 11, 12])
    made = st.parquet(tmp_path, schema=COLUMNS)
    (part,) = made.take(None, 10, None).slices
    assert made.read(part).rows.collect().height == 3
    write_parquet(tmp_path / "a.parquet", list(range(100)))
    with pytest.raises(st.SpringtideError, match=r"a\.parquet was changed while it was read"):
        made.read(part)


def test_the_backlog_of_files_that_were_not_counted_is_estimated(tmp_path: Path) -> None:
    for name in "abcd":
        write_csv(tmp_path / f"{name}.csv", [10] * 1000)
    (tmp_path / "e.csv").touch()
    take = st.csv(tmp_path, schema=COLUMNS).take(None, 500, None)
    assert 0.9 * 3500 <= take.backlog <= 1.1 * 3500
    assert not take.ended


def test_an_estimate_does_not_end_the_input(tmp_path: Path, drain: Drain) -> None:
    """Where rows were long so far, a short file looks as if it had a header only."""
    write_csv(tmp_path / "a.csv", [10**17] * 10)
    write_csv(tmp_path / "b.csv", [1, 2])
    assert drain(st.csv(tmp_path, schema=COLUMNS), 10).values("x")[10:] == [1, 2]


# ── Parquet only ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_row_groups_tell_their_greatest_time(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [5, 1, 3, 2, 9, 4, 7])
    made = st.parquet(tmp_path, schema=COLUMNS)
    assert [(p.position, p.rows, p.greatest) for p in made.take(None, 10, "x").slices] == [
        (0, 3, 5),
        (3, 3, 9),
        (6, 1, 7),
    ]
    assert [p.greatest for p in made.take(None, 10, None).slices] == [None, None, None]
    cut = made.take(None, 4, "x").slices
    assert [(p.rows, p.greatest) for p in cut] == [(3, 5), (1, 9)], "nothing comes after the last one in this epoch"
    rest = made.take(made.take(None, 4, "x").position, 10, "x").slices
    assert [(p.rows, p.greatest) for p in rest] == [(2, 9), (1, 7)], "what came before the 9 was read before"


def test_a_part_of_a_row_group_that_others_follow_does_not_tell_a_time(tmp_path: Path) -> None:
    """A file is read again as far as it was read; its row group has later rows, which do not come."""
    write_parquet(tmp_path / "a.parquet", [5, 1, 3, 2, 9, 4, 7])
    made = st.parquet(tmp_path, schema=COLUMNS)
    again = made.upto(made.take(None, 4, "x").position)
    assert [(p.rows, p.greatest) for p in again.take(None, 10, "x").slices] == [(3, 5), (1, None)]


def test_epochs_that_end_within_a_row_group_are_read_side_by_side(tmp_path: Path) -> None:
    """Whatever the limit is, every instance has about as much to read."""
    write_parquet(tmp_path / "a.parquet", list(range(30)))
    made, position = st.parquet(tmp_path, schema=COLUMNS), None
    for _ in range(3):
        take = made.take(position, 10, "x")
        shares = assign_slices(take.slices, 2)
        assert [sum(part.rows for part in share) for share in shares] in ([6, 4], [5, 5], [4, 6])
        position = take.position


def test_files_that_do_not_fit_are_rejected_and_do_not_move_time(tmp_path: Path, drain: Drain) -> None:
    write_parquet(tmp_path / "a.parquet", [1, 2])
    pl.DataFrame({"x": [50, 60], "z": [1, 2]}).write_parquet(tmp_path / "b.parquet")
    pl.DataFrame({"x": ["70"]}).write_parquet(tmp_path / "c.parquet")
    write_parquet(tmp_path / "d.parquet", [3])
    made = st.parquet(tmp_path, schema=COLUMNS)
    got = drain(made)
    assert got.rows == {0: {"x": 1}, 1: {"x": 2}, 5: {"x": 3}}
    assert got.reasons == {
        2: "b.parquet: there is no column 'z' in the source's schema",
        3: "b.parquet: there is no column 'z' in the source's schema",
        4: "c.parquet: column 'x' is str, not i64",
    }
    assert got.rejected[3] == {"x": 60, "z": 2}
    assert [p.greatest for p in made.take(None, 10, "x").slices] == [2, None, None, 3]
    source = st.source("s", made, ts="x")
    query = st.Query("q", source.to(st.memory_sink(), name="in"), source.rejected.to(st.memory_sink(), name="out"))
    result = query.run_reference()
    assert result.rows("in")["ts"].cast(pl.Int64).to_list() == [1, 2, 3]
    assert result.rows("out")["position"].to_list() == [2, 3, 4]


def test_columns_that_are_missing_or_elsewhere(tmp_path: Path, drain: Drain) -> None:
    pl.DataFrame({"y": ["a"], "x": [1]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"x": [2]}).write_parquet(tmp_path / "b.parquet")
    got = drain(st.parquet(tmp_path, schema={"x": pl.Int64, "y": pl.String}))
    assert list(got.rows.values()) == [{"x": 1, "y": "a"}, {"x": 2, "y": None}]


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("x,y\n1,2\n" * 10)
    with pytest.raises(st.SpringtideError, match=r"a\.parquet is not a Parquet file \(.+\); .*repair"):
        st.parquet(tmp_path, schema=COLUMNS).take(None, 10, None)


def test_a_file_that_cannot_be_read_yet_is_waited_for(tmp_path: Path) -> None:
    """Whoever writes into a followed folder need not rename; others are read meanwhile, and the unfinished one when it is whole."""
    made = st.parquet(tmp_path, schema=COLUMNS, follow=True)
    for i, name in enumerate("abc"):
        write_parquet(tmp_path / f"{name}.parquet", [i])
    whole = (tmp_path / "b.parquet").read_bytes()
    for length in (0, 3, 8, len(whole) - 1):
        (tmp_path / "b.parquet").write_bytes(whole[:length])
        take = made.take(None, 10, None)
        assert [s.data[0][-9:] for s in take.slices] == ["a.parquet", "c.parquet"]
        assert not take.ended
        assert take.notes == ()
    assert made.take(None, 1, None).backlog == 1, "an unfinished file is not counted"
    position = take.position
    for garbage in (b"for ever unfinished", b"PAR1" + b"x" * 20 + b"\x04\0\0\0PAR1"):
        (tmp_path / "b.parquet").write_bytes(garbage)
        os.utime(tmp_path / "b.parquet", (0, 0))
        take = made.take(position, 10, None)
        assert (take.slices, take.position) == ((), position)
        assert [note.partition(";")[0] for note in take.notes] == [f"{tmp_path}/b.parquet cannot be read"]
    (tmp_path / "b.parquet").write_bytes(whole)
    assert [s.data[0][-9:] for s in made.take(position, 10, None).slices] == ["b.parquet"]


def test_the_schema_that_was_found_stays(tmp_path: Path) -> None:
    write_parquet(tmp_path / "b.parquet", [1])
    made = st.parquet(tmp_path, follow=True)
    assert made.schema() == pl.Schema(COLUMNS)
    pl.DataFrame({"other": [1]}).write_parquet(tmp_path / "a.parquet")
    assert made.schema() == pl.Schema(COLUMNS)
    os.remove(tmp_path / "b.parquet")
    assert made.schema() == pl.Schema(COLUMNS)


@pytest.mark.parametrize("seed", range(12))
def test_the_same_rows_are_late_wherever_epochs_end_in_row_groups(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups are read side by side, in parts, and some of them together: what is late depends on none of that."""
    rng = Random(seed)
    monkeypatch.setattr(parquet, "TOGETHER", rng.choice([0, 10, 1_000]))
    for name in "abc":
        xs = [max(0, i * 3 + rng.randrange(-25, 25)) for i in range(rng.randrange(5, 60))]
        rows = pl.DataFrame({"x": [x + 150 * "abc".index(name) for x in xs]})
        rows.write_parquet(tmp_path / f"{name}.parquet", row_group_size=rng.randrange(1, 9))
    source = st.source("s", st.parquet(tmp_path), ts="x", max_disorder=timedelta(microseconds=rng.randrange(20)))
    counts = source.aggregate(window=st.tumbling("10us"), n=st.count(), name="counts")
    query = st.Query("q", counts.to(st.memory_sink(), name="out"), source.late.to(st.memory_sink(), name="late"))
    run(query.plan(buckets=4), tmp_path / "checkpoint", Options(rng.randrange(1, 5), rng.randrange(1, 30)))
    reference = query.run_reference()
    for name in ("out", "late"):
        compare(query.step(name).connector.rows(), reference.rows(name))  # type: ignore[attr-defined]


def test_a_task_reads_neighbours_of_a_file_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of two files, and not too many rows."""
    for name in "ab":
        pl.DataFrame({"x": range(8)}).write_parquet(tmp_path / f"{name}.parquet", row_group_size=2)
    made, found = st.parquet(tmp_path), list[tuple[int, int]]()
    query = st.Query("q", st.source("s", made, ts="x").to(st.memory_sink(), name="out"))
    read = parquet.Parquet.read

    def spied(self: parquet.Parquet, part: Slice) -> Any:
        found.append((part.position, part.rows))
        return read(self, part)

    monkeypatch.setattr(parquet.Parquet, "read", spied)
    monkeypatch.setattr(parquet, "TOGETHER", 7)
    run(query.plan(buckets=4), tmp_path / "checkpoint", Options(1))
    assert found == [(0, 6), (6, 2), (8, 6), (14, 2)]
