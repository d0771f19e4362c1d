"""A checkpoint in an object store: nodes that have nothing in common but that store."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import statistics
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.operators import state_view
from springtide.runtime import inprocess, storage
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.runtime.identity import begin_from
from springtide.sinks.memory import MemorySink
from springtide.state import caches, mirror, pieces, segment
from springtide.state.checkpoint import Checkpoint
from springtide.state.claims import Lease, take
from springtide.state.copying import backup, restore
from springtide.state.log import Log, Records
from springtide.state.manifest import Manifest
from springtide.state.primitives import checkpoint, persist, replay
from springtide.state.pulse import Sign
from springtide.state.savepoints import save, savepoints
from springtide.state.stores import Store
from springtide.state.verifying import Verified, verify
from tests.stores.in_turn import in_turn
from tests.stores.misbehaving import Misbehaving, Within, served

KEYS = ["k", "window_start"]
URL = "fake://bucket/ckpt"


def query(sink: MemorySink, rows: int = 60) -> st.Query:
    numbers = pl.int_range(rows, eager=True)
    frame = pl.DataFrame({"k": numbers % 7, "x": numbers, "ts": (numbers * 1_000_000).cast(st.TIME)})
    source = st.source("rows", st.memory(frame, schema=frame.schema), ts="ts")
    sums = source.aggregate(by="k", window=st.sliding("20s", every="5s"), total=st.sum("x"), name="sums")
    return st.Query("remote", sums.to(sink, name="out"))


def options(node: Path, every: str = "epoch", instances: int | None = 2, cut: int = 6) -> Options:
    return Options(instances, rows_per_epoch=cut, durability=Durability(every=every, cache=node))


def run(
    sink: MemorySink, given: Options, until: int | None = None, meanwhile: Callable[[Engine], None] = lambda _: None
) -> Engine:
    """Run to the end, or until an epoch is committed."""

    def between(engine: Engine) -> bool:
        meanwhile(engine)
        return until is None or engine.manifest.epoch < until

    return inprocess.run(query(sink).plan(buckets=8), URL, given, between=between)


def check(sink: MemorySink) -> None:
    found, expected = sink.rows(), query(MemorySink()).run_reference().rows()
    assert found.sort(KEYS).equals(expected.select(found.columns).sort(KEYS))


@pytest.fixture
def bucket() -> Iterator[Misbehaving]:
    bucket = Misbehaving(7, trouble=0.0)
    with served(bucket=bucket):
        yield bucket


@pytest.mark.parametrize("every", ["epoch", "1ms", "never"])
@pytest.mark.parametrize("trouble", [0.0, 0.3])
def test_another_node_goes_on_with_nothing_but_the_store(
    bucket: Misbehaving, tmp_path: Path, every: str, trouble: float
) -> None:
    bucket.trouble = trouble
    sink = MemorySink()
    for node, until in enumerate([2, 5, None]):
        run(sink, options(tmp_path / f"node{node}", every, instances=node + 1), until)
    check(sink)
    bucket.trouble = 0.0
    found = verify(URL)
    assert (found.damaged, found.unaccounted) == ((), ())
    assert not [f for f in bucket.files if "running" in f]


def test_s3(s3: str, tmp_path: Path) -> None:
    sink = MemorySink()
    bare, _, parts = s3.partition("?")
    given = dict(p.split("=") for p in parts.split("&"))
    for node, until in enumerate([3, None]):
        taken = options(tmp_path / f"node{node}", "1ms")
        checkpoint = taken.durability.checkpoint(f"{bare}/ckpt", given)
        plan = query(sink).plan(buckets=8)
        engine = Engine(plan, checkpoint, lambda epoch, plan=plan: inprocess.execute(plan, epoch), taken)
        engine.begin()
        while not engine.manifest.ended and (until is None or engine.manifest.epoch < until):
            engine.has_work()
            engine.run()
        engine.close()
    check(sink)
    kept = [f for f in tmp_path.rglob("*") if f.is_file()]
    assert not [f for f in kept if b"hush-hush" in f.read_bytes()], "secrets are written nowhere"


def delete(path: Path, _: Random) -> None:
    path.unlink()


def truncate(path: Path, _: Random) -> None:
    os.truncate(path, path.stat().st_size // 2)


def garble(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes() or b" ")
    data[random.randrange(len(data))] ^= 255
    path.write_bytes(data)


def cached(folder: Path) -> list[Path]:
    """Every file of the caches in a folder, but for what says whose a cache is."""
    return sorted(f for f in folder.rglob("*") if f.is_file() and f.name not in ("lock", ".springtide"))


@pytest.mark.parametrize("every", ["epoch", "1ms"])
@pytest.mark.parametrize("harm", [delete, truncate, garble])
@pytest.mark.parametrize("seed", range(2))
def test_caches_may_be_deleted_or_damaged_at_any_moment(
    bucket: Misbehaving, tmp_path: Path, every: str, harm: Callable[[Path, Random], None], seed: int
) -> None:
    random, sink = Random(seed), MemorySink()

    def do_harm(engine: Engine) -> None:
        for file in cached(tmp_path):
            if random.random() < 0.4:
                harm(file, random)
        if random.random() < 0.3:
            shutil.rmtree(engine.checkpoint.root / "state", ignore_errors=True)

    with in_turn():
        for until in (3, 6, None):
            run(sink, options(tmp_path, every), until, do_harm)
    check(sink)


@pytest.mark.parametrize("harm", [delete, truncate, garble])
def test_what_is_harmed_before_it_is_published_or_read_at_a_start_is_taken_from_the_store(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path, Random], None]
) -> None:
    random, sink = Random(0), MemorySink()
    commit, fill = Lease.commit, mirror.Mirror._cache

    def committed(self: Lease, manifest: Manifest) -> bytes:
        done = commit(self, manifest)
        for file in cached(tmp_path):
            harm(file, random)
        return done

    def filled(self: mirror.Mirror, *given: Any, **named: Any) -> None:
        fill(self, *given, **named)
        for file in cached(tmp_path):
            harm(file, random)

    monkeypatch.setattr(Lease, "commit", committed)
    monkeypatch.setattr(mirror.Mirror, "_cache", filled)
    with in_turn():
        for until in (3, 6, None):
            run(sink, options(tmp_path, "1ms"), until)
    check(sink)


@pytest.mark.parametrize("seed", range(4))
def test_who_gets_buckets_of_others_reads_these_and_no_more(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(segment, "LEAST", 0)
    random, sink = Random(seed), MemorySink()
    bucket.trouble = random.choice([0.0, 0.2])

    def change(engine: Engine) -> None:
        engine.scale("sums", random.randint(1, 4))
        for file in sorted(f for f in tmp_path.rglob("*.arrow") if f.is_file() and random.random() < 0.7):
            file.unlink()

    with monkeypatch.context() as patched:
        patched.setattr(pieces, "WORTH", 2.0)  # segments of a few rows have more around them than in them
        run(sink, options(tmp_path, random.choice(["epoch", "1ms"])), 5, change)
    assert [*tmp_path.rglob("pieces/state/sums/*/*.json")], "some were read by range"
    run(sink, options(tmp_path))
    check(sink)


@pytest.mark.parametrize("every", ["epoch", "1ms"])
def test_a_cache_gives_way_when_its_disk_is_full(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: str
) -> None:
    monkeypatch.setattr(caches, "_FRESH", -1.0)
    room, full = 40_000, list[Path]()

    def on_disk(write: Callable[..., Any], place: int) -> Callable[..., Any]:
        def written(*given: Any, **named: Any) -> Any:
            done, path = write(*given, **named), given[place]
            if sum(f.stat().st_size for f in tmp_path.rglob("*") if f.suffix in (".arrow", ".blob")) > room:
                path.unlink()
                full.append(path)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return done

        return written

    monkeypatch.setattr(state_view, "write_segment", on_disk(state_view.write_segment, 0))
    monkeypatch.setattr(Within, "fetch", on_disk(Within.fetch, 2))
    sink = MemorySink()
    with in_turn():
        run(sink, options(tmp_path, every))
    check(sink)
    assert full


def test_what_is_damaged_in_a_cache_is_fetched_again(bucket: Misbehaving, tmp_path: Path) -> None:
    sink = MemorySink()
    engine = run(sink, options(tmp_path), 4)
    for file in (engine.checkpoint.root / "state").rglob("*.arrow"):
        file.write_bytes(b"x" * file.stat().st_size)
    run(sink, options(tmp_path))
    check(sink)


def test_a_restart_on_the_same_node_finds_its_cache_warm(bucket: Misbehaving, tmp_path: Path) -> None:
    sink = MemorySink()
    run(sink, options(tmp_path), 4)
    before = bucket.requests["get"]
    run(sink, options(tmp_path), 5)
    warm = bucket.requests["get"] - before
    run(sink, options(tmp_path / "elsewhere"), 6)
    assert warm < bucket.requests["get"] - before - warm
    check_names = {f.split("/")[1] for f in bucket.files}
    assert check_names <= {"springtide.json", "manifests", "state", "outbox", "published", "history", "control"}


def test_requests_of_an_epoch_are_few_and_do_not_grow(bucket: Misbehaving, tmp_path: Path) -> None:
    """With four instances: a segment and a file for the sink each, the manifest, two looks at the claim, one removal."""
    counts: list[int] = []

    def note(engine: Engine) -> None:
        counts.append(sum(bucket.requests.values()))

    for every in ("epoch", "1h"):
        counts.clear()
        run(MemorySink(), options(tmp_path / every, every, instances=4, cut=3), None, note)
        each = [after - before for before, after in itertools.pairwise(counts[2:])]
        assert statistics.fmean(each) <= 15, each
        assert max(each) <= 20, each
        bucket.files.clear()


@pytest.mark.parametrize("every", ["epoch", "1h"])
def test_requests_do_not_depend_on_how_much_state_there_is(bucket: Misbehaving, tmp_path: Path, every: str) -> None:
    """A key in each row: ten times as many keys, and the same requests in each epoch."""
    found = []
    for rows in (2_000, 20_000):
        numbers, counts = pl.int_range(rows, eager=True), list[int]()
        ts = (numbers * (60_000_000 // rows)).cast(st.TIME)
        source = st.source("rows", st.memory(pl.DataFrame({"k": numbers, "x": numbers, "ts": ts})), ts="ts")
        sums = source.aggregate(by="k", window=st.sliding("20s", every="5s"), total=st.sum("x"), name="sums")
        plan = st.Query("remote", sums.to(MemorySink(), name="out")).plan(buckets=8)

        def note(_: Engine, counts: list[int] = counts) -> bool:
            counts.append(sum(bucket.requests.values()))
            return True

        with in_turn():
            given = options(tmp_path / f"{rows}", every, instances=4, cut=rows // 20)
            inprocess.run(plan, f"{URL}-{rows}", given, between=note)
        found.append([after - before for before, after in itertools.pairwise(counts)])
    assert found[0] == found[1]


def test_a_store_that_was_emptied_begins_anew_whatever_the_cache_says(bucket: Misbehaving, tmp_path: Path) -> None:
    run(MemorySink(), options(tmp_path), 4)
    bucket.files.clear()
    sink = MemorySink()
    run(sink, options(tmp_path))
    check(sink)


def test_a_run_that_was_paused_can_do_nothing(bucket: Misbehaving, tmp_path: Path) -> None:
    sink = MemorySink()
    plan = query(sink).plan(buckets=8)
    taken = options(tmp_path / "one")
    old = Engine(plan, taken.durability.checkpoint(URL), lambda epoch: inprocess.execute(plan, epoch), taken)
    old.begin()
    old.has_work()
    old.run()
    run(sink, options(tmp_path / "two"))
    before = dict(bucket.files)
    old.has_work()
    with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
        old.run()
    old.close()
    stray = {f for f in bucket.files if f not in before}
    assert all(f.startswith(("ckpt/state/", "ckpt/outbox/")) for f in stray), "what no manifest names"
    assert {f: bucket.files[f] for f in before} == before
    check(sink)


def test_what_nobody_names_is_removed_and_what_a_recovery_has_just_made_is_not(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments of epochs that are over are listed in one epoch and removed in another: in between, state may be lost and made anew, epoch by epoch."""
    monkeypatch.setattr(storage, "SWEPT", 1)
    stray, sink, recovered = "ckpt/state/sums/000000001-0-panes-stray.arrow", MemorySink(), list[bool]()

    def lose(engine: Engine) -> None:
        epoch = engine.manifest.epoch
        assert {f"ckpt/{s.file}" for s in engine.manifest.segments()} <= bucket.files.keys(), epoch
        recovered.append(any(s.epoch < epoch for s in engine.manifest.segments()))
        if epoch == 1:
            bucket.files[stray] = b"of an attempt that did not count"
        if epoch in (3, 5):
            for file in [f for f in bucket.files if f.startswith("ckpt/state/")]:
                del bucket.files[file]
            shutil.rmtree(engine.checkpoint.root / "state")
        assert epoch != 4 or stray not in bucket.files

    with in_turn():
        run(sink, options(tmp_path / "node", "never"), None, lose)
    check(sink)
    assert any(recovered)


@pytest.mark.parametrize("every", ["epoch", "1ms"])
def test_a_driver_that_is_paused_before_its_claim_takes_over_from_the_newest_epoch(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: str
) -> None:
    """What it has read of the log is forgotten when it goes on, and so is the epoch that was to come next."""
    sink = MemorySink()
    plan = query(sink, rows=150).plan(buckets=8)

    def driver(node: str) -> Engine:
        taken = options(tmp_path / node, every)
        return Engine(plan, taken.durability.checkpoint(URL), lambda epoch: inprocess.execute(plan, epoch), taken)

    def epochs(engine: Engine, count: int) -> None:
        for _ in range(count):
            engine.has_work()
            engine.run()

    with in_turn():
        first = driver("one")
        first.begin()
        epochs(first, 3)

        def paused(log: Log, records: Records, token: str) -> Lease | None:
            monkeypatch.undo()
            epochs(first, 22)
            assert not log.has(records.next()[0])
            return take(log, records, token)

        monkeypatch.setattr(mirror, "take", paused)
        second = driver("two")
        second.begin()
        assert second.manifest.epoch == first.manifest.epoch == 24
        with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
            epochs(first, 1)
        epochs(second, 1)
        first.close()
        second.close()
    run_to_the_end = inprocess.run(plan, URL, options(tmp_path / "two", every))
    assert run_to_the_end.manifest.ended
    found, expected = sink.rows(), query(MemorySink(), rows=150).run_reference().rows()
    assert found.sort(KEYS).equals(expected.select(found.columns).sort(KEYS))


def test_savepoints_are_in_the_store_too(bucket: Misbehaving, tmp_path: Path) -> None:
    sink = MemorySink()
    run(sink, options(tmp_path / "one", "1ms"), 4)
    place = save(Store.at(URL), "half")
    assert place == f"{URL}/savepoints/half"
    assert savepoints(URL)["half"].epoch == 4
    with pytest.raises(st.CheckpointError, match="has a savepoint half already"):
        save(Store.at(URL), "half")
    run(sink, options(tmp_path / "one"))
    check(sink)
    assert verify(place).damaged == ()
    plan = query(MemorySink()).plan(buckets=8)
    for target in (tmp_path / "here", "fake://bucket/there"):
        assert begin_from(place, plan, target) == 4
        assert begin_from(place, plan, target) == 4, "a start that is repeated goes on"
    rest = MemorySink()
    inprocess.run(query(rest).plan(buckets=8), "fake://bucket/there", options(tmp_path / "two"))
    assert 0 < rest.rows().height < sink.rows().height


READERS: dict[str, Callable[[Path], object]] = {
    "backup": lambda to: verify(to) if backup(URL, to).epochs else None,
    "restore": lambda to: verify(to) if restore(URL, to).epochs else None,
    "checkpoint": lambda to: checkpoint(URL),
    "persist": lambda to: persist(URL, to),
    "replay": lambda to: replay(URL),
    "verify": lambda to: verify(URL),
    "savepoint": lambda to: verify(save(Store.at(URL), "half")),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("every", ["epoch", "1ms"])
def test_a_run_that_goes_on_takes_nothing_from_who_reads(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, every: str
) -> None:
    """Between any two files that somebody reads or copies, it forgets all epochs that there were."""
    plan, taken = query(MemorySink(), rows=900).plan(buckets=8), options(tmp_path / "node", every, cut=3)
    engine = Engine(plan, taken.durability.checkpoint(URL), lambda epoch: inprocess.execute(plan, epoch), taken)
    pauses, running = 0, threading.Lock()

    def epochs(count: int) -> None:
        for _ in range(count):
            engine.has_work()
            engine.run()

    def pausing(act: Callable[..., Any]) -> Callable[..., Any]:
        def paused(self: Within, path: str, to: Any) -> None:
            nonlocal pauses
            if path.startswith("state/") and pauses < 2 and running.acquire(blocking=False):
                pauses += 1
                epochs(14)
                running.release()
            act(self, path, to)

        return paused

    with in_turn():
        engine.begin()
        epochs(3)
        Store.at(URL).write("running", Sign.of(10.0, 1).encode())
        monkeypatch.setattr(Within, "fetch", pausing(Within.fetch))
        monkeypatch.setattr(Within, "copy", pausing(Within.copy))
        found = READERS[reader](tmp_path / "to")
        assert pauses or reader == "replay"
        assert not isinstance(found, Verified) or (found.damaged, found.unaccounted) == ((), ())
        engine.close()
    assert [f for f in bucket.files if "/.pin-" in f] == []


def test_what_was_held_for_a_reader_that_died_is_removed_a_day_later(bucket: Misbehaving, tmp_path: Path) -> None:
    run(MemorySink(), options(tmp_path / "node"), 3)
    store = Store.at(URL)
    store.write("running", Sign.of(10.0, 1).encode())
    store.write("savepoints/.pin-1/state/x.arrow", b"left")  # this store's clock is years behind
    assert checkpoint(URL).epoch == 3
    assert store.list("savepoints") == []


def test_who_may_only_read_reads_what_there_is(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(MemorySink(), options(tmp_path / "node"), 3)
    Store.at(URL).write("running", Sign.of(10.0, 1).encode())

    def refuse(*_: Any) -> None:
        raise PermissionError("403 AccessDenied")

    for method in ("put", "create", "copy", "delete"):
        monkeypatch.setattr(Within, method, refuse)
    assert checkpoint(URL).epoch == 3


def test_a_checkpoint_moves_from_a_folder_to_a_store_and_back(bucket: Misbehaving, tmp_path: Path) -> None:
    sink = MemorySink()
    inprocess.run(
        query(sink).plan(buckets=8), tmp_path / "folder", options(tmp_path), between=lambda e: e.manifest.epoch < 3
    )
    backup(tmp_path / "folder", URL)
    run(sink, options(tmp_path / "node"), 6)
    backup(URL, "fake://bucket/other")
    backup("fake://bucket/other", tmp_path / "back")
    inprocess.run(query(sink).plan(buckets=8), tmp_path / "back", options(tmp_path))
    check(sink)


def test_a_backup_beside_a_checkpoint_in_a_store_is_refused(bucket: Misbehaving, tmp_path: Path) -> None:
    with pytest.raises(st.QueryError, match=r"already in an object store .*backup=.*; "):
        Durability(backup=tmp_path).checkpoint(URL)
    with pytest.raises(st.QueryError, match="cache='s3://b/x' is not a folder"):
        Durability(cache="s3://b/x")


def test_a_bucket_that_is_not_there_is_refused_before_anything_starts(s3: str, tmp_path: Path) -> None:
    place = s3.replace("s3://bucket-", "s3://no-bucket-")
    with pytest.raises(st.CheckpointError, match=r"cannot write .*[Bb]ucket"):
        inprocess.run(query(MemorySink()).plan(buckets=8), place, options(tmp_path))


def test_another_query_is_refused(bucket: Misbehaving, tmp_path: Path) -> None:
    run(MemorySink(), options(tmp_path / "one"), 1)
    other = query(MemorySink())
    with pytest.raises(st.CheckpointError, match=r"checkpoint fake://bucket/ckpt was written by another form"):
        inprocess.run(other.plan(buckets=4), URL, options(tmp_path / "two"))


def test_a_listing_that_is_behind_loses_nothing(bucket: Misbehaving, tmp_path: Path) -> None:
    """Every listing may be without the last files: claims, manifests and segments are asked for by name."""
    bucket.trouble, bucket.lag = 0.3, 12
    sink = MemorySink()
    for node in range(4):
        run(sink, options(tmp_path / f"node{node % 2}", "never" if node % 2 else "epoch"), node * 2 + 1)
    run(sink, options(tmp_path / "last"))
    check(sink)


def test_a_folder_by_its_address_is_that_folder(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path).remote is None
    assert Checkpoint(tmp_path.as_uri()).root == tmp_path
