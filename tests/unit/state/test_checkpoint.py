"""A checkpoint on disk: who may use it, and what is in it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import springtide as st
from springtide.state.checkpoint import FORMAT, Checkpoint
from springtide.state.errors import AwayError
from springtide.state.manifest import Manifest, SubqueryState
from springtide.state.segment import Segment
from tests.wording import says

IDENTITY: dict[str, Any] = {
    "query": "heavy",
    "steps": {"calls": "source: {}", "agg": "aggregate: n"},
    "buckets": 256,
    "hash": "abc",
    "polars": "2.1.0",
    "state": {},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "ckpt"


@pytest.fixture
def used(root: Path) -> Checkpoint:
    """A checkpoint that a run has left, with two epochs in it."""
    checkpoint = Checkpoint(root)
    lease = checkpoint.acquire(IDENTITY)
    for epoch in (0, 1):
        lease.commit(Manifest(epoch=epoch, generation=lease.generation))
    lease.release()
    return checkpoint


def content(root: Path) -> dict[str, bytes]:
    """All files but the lock, which says who was there last."""
    return {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file() and f.name != "lock"}


def refusal(checkpoint: Checkpoint, identity: dict[str, Any] = IDENTITY) -> str:
    """Take the checkpoint, be refused, and see that nothing was changed."""
    before = content(checkpoint.root)
    with pytest.raises(st.CheckpointError) as caught:
        checkpoint.acquire(identity)
    assert content(checkpoint.root) == before
    assert caught.value.path == str(checkpoint.root)
    return f"{caught.value.problem}; {caught.value.hint}"


# ── opening ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_folder_is_made(root: Path) -> None:
    checkpoint = Checkpoint(root / "deep" / "down")
    lease = checkpoint.acquire(IDENTITY)
    assert lease.generation == 1
    assert checkpoint.identity() == IDENTITY
    assert checkpoint.epochs() == []
    assert checkpoint.latest() is None
    lease.release()


def test_naming_a_folder_touches_nothing(root: Path) -> None:
    assert not Checkpoint(root).in_use()
    assert not root.exists()


def test_each_run_is_a_generation(root: Path) -> None:
    for generation in (1, 2, 3):
        lease = Checkpoint(root).acquire(IDENTITY)
        assert lease.generation == generation
        lease.release()
        lease.release()  # once more does no harm


def test_an_empty_folder_is_taken(root: Path) -> None:
    root.mkdir()
    Checkpoint(root).acquire(IDENTITY).release()


@pytest.mark.parametrize("left", ["lock", "springtide.json.partial"])
def test_a_run_that_died_while_making_it_does_no_harm(root: Path, left: str) -> None:
    root.mkdir()
    (root / left).write_text("{")
    lease = Checkpoint(root).acquire(IDENTITY)
    assert lease.generation == 1
    lease.release()


def test_a_foreign_folder_is_refused(root: Path) -> None:
    root.mkdir()
    (root / "thesis.tex").write_text("precious")
    assert refusal(Checkpoint(root)).endswith("not a Springtide checkpoint; give an empty or a new folder")
    assert [f.name for f in root.iterdir()] == ["thesis.tex"]


def test_a_file_is_refused(root: Path) -> None:
    root.write_text("precious")
    with pytest.raises(st.CheckpointError, match="is a file; give an empty or a new folder"):
        Checkpoint(root).acquire(IDENTITY)
    assert root.read_text() == "precious"


def test_one_run_at_a_time(root: Path) -> None:
    checkpoint = Checkpoint(root)
    lease = checkpoint.acquire(IDENTITY)
    assert checkpoint.in_use()
    said = refusal(Checkpoint(root))
    assert said.startswith(f"is in use by process {os.getpid()} on ")
    assert said.endswith("; stop that run first, or give this one another checkpoint")
    lease.release()
    assert not checkpoint.in_use()
    Checkpoint(root).acquire(IDENTITY).release()


def test_a_second_process_is_refused_and_let_in_when_the_first_has_died(root: Path) -> None:
    program = (
        "import json, sys; from springtide.state.checkpoint import Checkpoint\n"
        "lease = Checkpoint(sys.argv[1]).acquire(json.loads(sys.argv[2]))\n"
        "print(lease.generation, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(root), json.dumps(IDENTITY)]
    path = os.pathsep.join([str(Path(st.__file__).parents[1]), *sys.path])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "1\n"
        assert refusal(Checkpoint(root)).startswith(f"is in use by process {other.pid} on ")
        other.kill()
        other.wait()
    lease = Checkpoint(root).acquire(IDENTITY)
    assert lease.generation == 2
    lease.release()


def test_another_query(used: Checkpoint) -> None:
    said = refusal(used, IDENTITY | {"query": "light", "hash": "other"})
    assert said.startswith("belongs to the query 'heavy', not 'light'; give this query ")


@pytest.mark.parametrize(
    ("steps", "named"),
    [
        ({"calls": "source: {}", "agg": "aggregate: m"}, "step agg: aggregate: n → aggregate: m"),
        ({"calls": "source: {}"}, "step agg was removed"),
        ({**IDENTITY["steps"], "more": "filter: x"}, "step more is new"),
        ({"calls": "other", "agg": "other"}, "step agg: aggregate: n → other; step calls: source: {} → other"),
    ],
)
def test_a_changed_step(used: Checkpoint, steps: dict[str, str], named: str) -> None:
    said = refusal(used, IDENTITY | {"steps": steps})
    assert said.startswith(f"was written by another form of this query: {named}; ")


def test_another_number_of_buckets(used: Checkpoint) -> None:
    assert "another form of this query: buckets: 256 → 512" in refusal(used, IDENTITY | {"buckets": 512})


def test_another_hash(used: Checkpoint) -> None:
    said = refusal(used, IDENTITY | {"hash": "def", "polars": "3.0.0"})
    assert says(said, "another hash of keys", "Polars 2.1.0", "3.0.0", "; use Polars 2.1.0")


def test_another_polars_with_the_same_hash_may_go_on(used: Checkpoint) -> None:
    used.acquire(IDENTITY | {"polars": "2.1.9"}).release()


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"format": 1}', b'{"format": 1, "identity": {}}', b"\xff\xfe"]
)
def test_a_damaged_marker(used: Checkpoint, data: bytes) -> None:
    (used.root / "springtide.json").write_bytes(data)
    assert refusal(used).startswith("has a damaged springtide.json; restore that file")


def test_a_newer_format(used: Checkpoint) -> None:
    (used.root / "springtide.json").write_text(json.dumps({"format": FORMAT + 1, "who": "knows"}))
    said = refusal(used)
    assert says(said, "format 2", "reads 1; ", "newer version")


def test_no_checkpoint_has_no_identity(root: Path) -> None:
    with pytest.raises(st.CheckpointError, match="not a Springtide checkpoint; check the path"):
        Checkpoint(root).identity()


# ── manifests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_manifests_are_read_oldest_first(used: Checkpoint) -> None:
    assert used.epochs() == [0, 1]
    assert [m.epoch for m in used.history()] == [0, 1]
    latest = used.latest()
    assert latest is not None
    assert latest.epoch == 1
    used.forget(0)
    used.forget(0)
    assert used.epochs() == [1]


def test_a_missing_manifest(used: Checkpoint) -> None:
    with pytest.raises(st.CheckpointError, match=r"has no manifest of epoch 7; it has \[0, 1\]"):
        used.manifest(7)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"format": 1, "crc": 0, "body": {}}'])
def test_a_damaged_manifest(used: Checkpoint, data: bytes) -> None:
    (used.root / "manifests" / "000000001").write_bytes(data)
    with pytest.raises(st.CheckpointError, match=r"the manifest of epoch 1 is damaged \(.+\); restore that file"):
        used.latest()


def test_a_manifest_of_a_newer_format_is_not_called_damaged(used: Checkpoint) -> None:
    (used.root / "manifests" / "000000001").write_bytes(b'{"format": 2}')
    with pytest.raises(st.CheckpointError) as caught:
        used.latest()
    assert says(caught.value.problem, "cannot be read: ", "epoch 1 has format 2", "reads 1")
    assert "newer version" in caught.value.hint


def test_a_committed_epoch_is_not_overwritten(used: Checkpoint) -> None:
    before = (used.root / "manifests" / "000000001").read_bytes()
    lease = used.acquire(IDENTITY)
    lease.commit(Manifest(epoch=2, generation=lease.generation))
    with pytest.raises(st.CheckpointError, match="already has a manifest of epoch 2"):
        lease.commit(Manifest(epoch=2, generation=lease.generation, ended=True))
    assert (used.root / "manifests" / "000000001").read_bytes() == before
    assert not list((used.root / "manifests").glob("*.partial"))
    lease.release()


def test_a_run_that_lost_the_checkpoint_is_refused(used: Checkpoint) -> None:
    """A run that was thought dead wakes up after another one has taken over."""
    stale = used.acquire(IDENTITY)
    stale.release()
    fresh = used.acquire(IDENTITY)
    with pytest.raises(st.CheckpointError, match=r"taken over by a newer run \(process .*\); .*stale"):
        stale.commit(Manifest(epoch=2, generation=stale.generation))
    assert used.epochs() == [0, 1]
    fresh.commit(Manifest(epoch=2, generation=fresh.generation))
    assert used.epochs() == [0, 1, 2]
    fresh.release()


def test_a_full_disk_leaves_no_half_manifest(used: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = used.acquire(IDENTITY)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr("springtide.state.stores.WAITS", ())
    with pytest.raises(AwayError, match="No space left"):
        lease.commit(Manifest(epoch=2, generation=lease.generation))
    monkeypatch.undo()
    assert sorted(f.name for f in (used.root / "manifests").iterdir()) == ["000000000", "000000001", "000000002"]
    assert used.epochs() == [0, 1], "the third is a claim"
    lease.commit(Manifest(epoch=2, generation=lease.generation))
    lease.release()


def test_sweeping_keeps_what_is_spoken_of(used: Checkpoint) -> None:
    kept = Segment("state/agg/kept.arrow", "panes", epoch=1, instance=0, version=0, rows=1, bytes=1, low=0, high=0)
    manifest = Manifest(epoch=1, generation=1, state={"agg": SubqueryState({}, (kept,))})
    files = {
        "state/agg/kept.arrow": True,
        "state/agg/left.arrow": False,
        "state/agg/half.partial": False,
        "outbox/000000001/out-agg-0.arrow": True,  # committed: it may still have to be published
        "outbox/000000002/out-agg-0.arrow": False,
        "outbox/000000000/out-agg-0.arrow": False,
        "manifests/000000002.1.partial": False,
        "control/1.json": True,
        "spark/offsets/0": True,
        "spark/offsets/.1.4711.tmp": False,
        "spark/offsets/..1.4711.tmp.crc": False,
    }
    for file in files:
        (used.root / file).parent.mkdir(parents=True, exist_ok=True)
        (used.root / file).touch()
    used.sweep(used.left(manifest.files(), manifest.epoch))
    assert {file: (used.root / file).exists() for file in files} == files
    assert used.epochs() == [0, 1]


def test_sweeping_a_new_checkpoint(root: Path) -> None:
    checkpoint = Checkpoint(root)
    lease = checkpoint.acquire(IDENTITY)
    assert checkpoint.left(set(), -1) == []
    checkpoint.sweep([])
    lease.release()


def test_the_error_survives_a_trip_between_processes() -> None:
    error = st.CheckpointError("ckpt", "is in use", "stop it")
    again = pickle.loads(pickle.dumps(error))
    assert (again.path, again.problem, again.hint, str(again)) == ("ckpt", "is in use", "stop it", str(error))


def test_somebody_who_may_only_read_can_tell_whether_it_is_in_use(used: Checkpoint) -> None:
    (used.root / "lock").chmod(0o444)
    opened, real = [], os.open

    def reading(path: object, flags: int, *more: int) -> int:
        opened.append(flags)
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "open", reading)
        assert not used.in_use()
    assert opened
