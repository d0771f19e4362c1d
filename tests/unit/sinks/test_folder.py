"""A folder of Parquet files: whose it is, and that every row comes once, whatever dies and whatever is taken away."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.dataset
import pytest

import springtide as st
from springtide.connectors import Owner, Publication, Writer, commit_of
from springtide.sinks.ledger import PREFIX, FolderEntry, named, read_entry, staged_name
from springtide.state.checkpoint import Lineage
from springtide.state.errors import LostError
from tests.unit.sinks.kinds import Died
from tests.wording import says

SCHEMA = pl.Schema({"x": pl.Int64()})
MINE = Owner("numbers", "out", Lineage("a" * 32), generation=1)


def publication(folder: Path, *parts: list[int], epoch: int = 7, attempt: str = "") -> Publication:
    """Write the files that tasks write, one per part."""
    outbox = folder / "outbox"
    outbox.mkdir(parents=True, exist_ok=True)
    files = []
    for i, xs in enumerate(parts):
        files.append(outbox / f"out-{epoch}-{i}{attempt}.parquet")
        if not files[-1].exists():
            pl.DataFrame({"x": xs}, schema=SCHEMA).write_parquet(files[-1])

    def find(path: Path) -> Path:
        if not path.exists():
            raise LostError("ckpt", f"{path} is not there", "restore it")
        return path

    return Publication("out", epoch, SCHEMA, tuple(files), tuple(map(len, parts)), find)


def opened(folder: Path, owner: Owner = MINE, notes: list[str] | None = None) -> Writer:
    sink = st.parquet_sink(folder / "out")
    sink.admit(owner)
    return sink.open(replace(owner, note=(notes if notes is not None else []).append))


def content(folder: Path) -> list[int]:
    return sorted(x for f in (folder / "out").glob("part-*.parquet") for x in pl.read_parquet(f)["x"].to_list())


def ledger(folder: Path) -> FolderEntry:
    (name,) = [f.name for f in (folder / "out").iterdir() if f.name.startswith(PREFIX)]
    entry = read_entry(name)
    assert entry is not None
    return entry


# ── what is there ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_have_the_number_of_their_epoch(tmp_path: Path) -> None:
    out = opened(tmp_path)
    out.publish(publication(tmp_path, [1, 2], [3]))
    out.publish(publication(tmp_path, [1, 2], [3]))
    assert sorted(f.name for f in (tmp_path / "out").glob("[!.]*")) == [
        "part-000000007-0000.parquet",
        "part-000000007-0001.parquet",
    ]
    assert content(tmp_path) == [1, 2, 3]
    assert ledger(tmp_path).epoch == 7


def test_readers_pass_the_ledger_over(tmp_path: Path) -> None:
    out = opened(tmp_path)
    out.publish(publication(tmp_path, [1, 2], [3]))
    assert pl.read_parquet(tmp_path / "out")["x"].to_list() == [1, 2, 3]
    assert pl.scan_parquet(tmp_path / "out" / "*.parquet").collect()["x"].to_list() == [1, 2, 3]
    assert pyarrow.dataset.dataset(tmp_path / "out").to_table()["x"].to_pylist() == [1, 2, 3]


def test_an_epoch_without_rows_costs_nothing_and_a_run_without_any_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = opened(tmp_path)
    out.publish(publication(tmp_path, epoch=0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: pytest.fail("fsync"))
        out.publish(publication(tmp_path, epoch=1))
    out.close()
    assert list((tmp_path / "out").iterdir()) == []


def test_an_epoch_costs_two_calls_to_the_disk_however_many_files_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, given, calls = opened(tmp_path), publication(tmp_path, *([i] for i in range(9))), []
    monkeypatch.setattr(os, "fsync", calls.append)
    out.publish(given)
    assert len(calls) == 2


# ── exactly once ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Mortal:
    """Dies at the n-th call that changes something; a reader takes all files before every one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, n: int, take: Callable[[], None]) -> None:
        self.left, self.take = n, take
        for name in ("link", "rename", "fsync"):
            patch.setattr(os, name, self.wrapped(getattr(os, name)))

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*arguments: Any, **more: Any) -> Any:
            self.take()
            self.left -= 1
            if self.left == 0:
                raise Died
            return call(*arguments, **more)

        return calling


@pytest.mark.parametrize("n", range(1, 14))
@pytest.mark.parametrize("links", [True, False], ids=["links", "copies"])
def test_a_crash_at_any_step_and_a_reader_that_takes_files_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, links: bool
) -> None:
    taken: list[int] = []

    def take() -> None:
        for file in sorted((tmp_path / "out").glob("part-*.parquet")):
            taken.extend(pl.read_parquet(file)["x"].to_list())
            file.unlink()

    if not links:

        def link(*_: Any) -> None:
            raise OSError(errno.EXDEV, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", link)
    given = publication(tmp_path, [1, 2], [3], [4], epoch=7)
    with monkeypatch.context() as patch:
        Mortal(patch, n, take)
        with suppress(Died):
            opened(tmp_path).publish(given)
    take()
    owner = replace(MINE, generation=2, epoch=7, commit=given.commit)
    out = opened(tmp_path, owner)
    out.publish(given)
    take()
    out.publish(given)
    out.publish(publication(tmp_path, [5], epoch=8))
    out.close()
    take()
    assert sorted(taken) == [1, 2, 3, 4, 5]
    assert [f.name for f in (tmp_path / "out").iterdir()] == [named(ledger(tmp_path))]


def test_what_a_power_cut_took_back_is_revealed_again(tmp_path: Path) -> None:
    """Names become durable with the next epoch or at the end. Until then a file may be found under its hidden name again, and even after a later epoch without rows."""
    out, given = opened(tmp_path), publication(tmp_path, [1, 2], [3])
    out.publish(given)
    shown = tmp_path / "out" / "part-000000007-0001.parquet"
    os.rename(shown, shown.with_name(staged_name(7, 1, given.commit, ledger(tmp_path).staged)))
    opened(tmp_path, replace(MINE, generation=2, epoch=8))
    assert content(tmp_path) == [1, 2, 3]


def test_a_lost_file_is_an_error_unless_the_epoch_is_recorded(tmp_path: Path) -> None:
    out, given = opened(tmp_path), publication(tmp_path, [1], [2])
    given.outbox[1].unlink()
    with pytest.raises(LostError, match="is not there"):
        out.publish(given)
    assert content(tmp_path) == []
    again = publication(tmp_path, [1], [2])
    out.publish(again)
    shutil.rmtree(tmp_path / "outbox")
    out.publish(publication(tmp_path, [1], [2]))
    assert content(tmp_path) == [1, 2]


def test_a_file_that_is_in_the_way_is_not_written_over(tmp_path: Path) -> None:
    out = opened(tmp_path)
    (tmp_path / "out" / "part-000000007-0000.parquet").write_text("a diary")
    with pytest.raises(st.SinkError, match=r"part-000000007-0000.parquet already exists.*; move"):
        out.publish(publication(tmp_path, [1]))
    assert (tmp_path / "out" / "part-000000007-0000.parquet").read_text() == "a diary"


def test_a_folder_that_was_removed_is_made_anew(tmp_path: Path) -> None:
    notes: list[str] = []
    out = opened(tmp_path, notes=notes)
    out.publish(publication(tmp_path, [1], epoch=7))
    shutil.rmtree(tmp_path / "out")
    out.publish(publication(tmp_path, [2], epoch=8))
    assert content(tmp_path) == [2]
    assert [note.partition(";")[0] for note in notes] == [f"the record in {tmp_path / 'out'} was removed"]


# ── whose it is ───────────────────────────────────────────────────────────────────────────────────────────────────────

OTHER = Lineage("b" * 32)
CHILD = Lineage("c" * 32, ((MINE.lineage.id, 7),))


def refused(folder: Path, owner: Owner, why: str) -> None:
    before = sorted(f.name for f in (folder / "out").iterdir())
    with pytest.raises(st.SinkError, match=why):
        st.parquet_sink(folder / "out").admit(owner)
    assert sorted(f.name for f in (folder / "out").iterdir()) == before


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (replace(MINE, lineage=OTHER, epoch=9), "belongs to the sink out of the query 'numbers' .*; give this sink"),
        (replace(MINE, name="late", epoch=9), "belongs to the sink out of .*; call this sink out again"),
        (replace(MINE, epoch=6), "this checkpoint ends with epoch 6: later rows would come twice"),
        (replace(MINE, generation=0, epoch=7), "was taken over by a newer run"),
        (replace(MINE, epoch=7, commit="0" * 16), "has another epoch 7 of .*: two runs"),
        (replace(MINE, lineage=Lineage("d" * 32, ((MINE.lineage.id, 6),)), epoch=9), "was made from it at epoch 6"),
    ],
)
def test_what_is_not_its_own_is_refused(tmp_path: Path, owner: Owner, why: str) -> None:
    opened(tmp_path).publish(publication(tmp_path, [1]))
    refused(tmp_path, owner, why)


def test_a_checkpoint_that_was_made_of_the_owner_takes_over(tmp_path: Path) -> None:
    old = opened(tmp_path)
    old.publish(publication(tmp_path, [1]))
    new = opened(tmp_path, replace(MINE, lineage=CHILD, epoch=7))
    with pytest.raises(st.SinkError, match=r"was taken over by .*checkpoint cccccccc.*; this run is stale"):
        old.publish(publication(tmp_path, [2], epoch=8, attempt="-old"))
    new.publish(publication(tmp_path, [3], epoch=8, attempt="-new"))
    assert content(tmp_path) == [1, 3]


def test_a_run_of_the_same_checkpoint_that_lost_it_publishes_nothing_more(tmp_path: Path) -> None:
    """It staged its files before it lost the folder: they are not seen, now or later."""
    old = opened(tmp_path)
    old.publish(publication(tmp_path, [1]))
    new = opened(tmp_path, replace(MINE, generation=2, epoch=7))
    with pytest.raises(st.SinkError, match="was taken over"):
        old.publish(publication(tmp_path, [2], epoch=8, attempt="-old"))
    new.publish(publication(tmp_path, [3], epoch=8, attempt="-new"))
    opened(tmp_path, replace(MINE, generation=3, epoch=8)).close()
    assert content(tmp_path) == [1, 3]
    assert len(list((tmp_path / "out").iterdir())) == 3


@pytest.mark.parametrize("taken", [False, True], ids=["its files are there", "its files were taken away"])
def test_a_run_that_was_paused_while_it_staged_shows_nothing_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    """It wakes up when a newer run of the same checkpoint has published that very epoch: what it stages then must not count as that run's."""
    old, given = opened(tmp_path), publication(tmp_path, [1, 2])
    link = os.link

    def slowly(file: Any, hidden: Any) -> None:
        monkeypatch.setattr(os, "link", link)
        opened(tmp_path, replace(MINE, generation=2, epoch=7)).publish(given)
        if taken:
            (tmp_path / "out" / "part-000000007-0000.parquet").unlink()
        link(file, hidden)

    monkeypatch.setattr(os, "link", slowly)
    with pytest.raises(st.SinkError, match="was taken over"):
        old.publish(given)
    opened(tmp_path, replace(MINE, generation=3, epoch=7)).publish(given)
    assert content(tmp_path) == ([] if taken else [1, 2])
    assert not list((tmp_path / "out").glob("*.staged"))


def test_files_of_nobody(tmp_path: Path) -> None:
    """A folder without a ledger is taken if all in it can be this checkpoint's: an older version wrote it, or the ledger was removed."""
    (tmp_path / "out").mkdir()
    for name in ("part-000000006-0000.parquet", "_SUCCESS", ".hidden"):
        (tmp_path / "out" / name).touch()
    refused(tmp_path, MINE, r"has files .*\(part-000000006-0000.parquet\); give this sink an empty")
    refused(tmp_path, replace(MINE, epoch=5), r"has files .*\(part-000000006-0000.parquet\)")
    notes: list[str] = []
    opened(tmp_path, replace(MINE, epoch=6), notes).close()
    assert ledger(tmp_path).epoch == -1
    assert says(notes[0], "has no record of whose it is", "up to epoch 6")
    (tmp_path / "out" / named(ledger(tmp_path))).unlink()
    (tmp_path / "out" / "diary.txt").touch()
    refused(tmp_path, replace(MINE, epoch=6), r"has files .*\(diary.txt\)")


def test_an_epoch_that_an_older_version_published_in_part_is_finished(tmp_path: Path) -> None:
    """That version moved files from the outbox: of three one is there, one was taken away, and one is still on its way."""
    given = publication(tmp_path, [1], [2], [3])
    (tmp_path / "out").mkdir()
    os.rename(given.outbox[0], tmp_path / "out" / "part-000000007-0000.parquet")
    given.outbox[1].unlink()
    owner = replace(MINE, epoch=7, commit=given.commit, older=True)
    opened(tmp_path, owner).publish(given)
    assert content(tmp_path) == [1, 3]


def test_two_that_begin_at_once_are_both_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = os.open
    (tmp_path / "out").mkdir()

    def slowly(path: Any, *more: Any) -> int:
        monkeypatch.setattr(os, "open", create)
        Path(tmp_path / "out" / named(FolderEntry.begun(replace(MINE, lineage=OTHER), None))).touch()
        return create(path, *more)

    monkeypatch.setattr(os, "open", slowly)
    with pytest.raises(st.SinkError, match=r"was claimed at the same moment by .*checkpoint bbbbbbbb"):
        opened(tmp_path)
    assert ledger(tmp_path).checkpoint == OTHER.id


def test_long_names_fit_and_are_told_apart() -> None:
    one, two = (FolderEntry.begun(replace(MINE, name="ä" * 200 + end), None) for end in "ab")
    assert one.sink != two.sink
    assert len(named(one).encode()) < 255
    assert read_entry(named(one)) == one
    assert read_entry(PREFIX + "x") is None


def test_marks_differ() -> None:
    assert commit_of(["a", "b"]) != commit_of(["a", "c"])


def test_other_errors_are_told(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        opened(tmp_path)
