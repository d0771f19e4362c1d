"""The kind `manifests`: a checkpoint with damaged or forged small files. Whatever is done with it works or is refused, and touches nothing else.

A start, `status`, `state`, `history` and `springtide checkpoint list, verify, copy, restore, save`: each either works or says what is wrong by an error
of ours. What is outside the checkpoint stays as it was, but for what they are asked to write.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import polars as pl

import springtide as st
from springtide import state
from springtide.cli.checkpoint import list_
from springtide.cli.errors import CommandError
from springtide.cli.history import history
from springtide.cli.state import state as show_state
from springtide.cli.status import status
from springtide.runtime import inprocess
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.runtime.identity import begin_from
from springtide.state.verifying import verify
from tests.contract.damage import damage

SCHEMA = {"ts": st.TIME, "k": pl.String, "x": pl.Int64}
OWN = {"own.json": b"{}", "own.arrow": b"mine", "state/own.arrow": b"mine", "memory/note": b"mine"}


def query(out: Path) -> st.Query:
    """Make a query with state and two sinks."""
    rows = pl.DataFrame(
        {"ts": [i * 1_000_000 for i in range(24)], "k": [f"k{i % 3}" for i in range(24)], "x": range(24)}
    ).with_columns(pl.col("ts").cast(st.TIME))
    source = st.source("rows", st.memory(rows, schema=SCHEMA), ts="ts")
    sums = source.aggregate(by="k", window=st.tumbling("6s"), total=st.sum("x"), name="sums")
    return st.Query(
        "damaged", sums.to(st.parquet_sink(out), name="out"), source.to(st.callback(lambda *_: None), name="copy")
    )


def durability(kind: str, memory: Path) -> Durability:
    """Choose one of two ways to keep state."""
    return Durability() if kind == "epoch" else Durability("never", shared_memory=memory)


def run(root: Path, out: Path, memory: Path, kind: str, stop: int, *, kill: bool = False) -> None:
    """Run the query on a checkpoint up to an epoch."""

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch < stop:
            return True
        if kill:
            engine.close = engine.storage.lease.release  # type: ignore[method-assign]
        return False

    options = Options(2, rows_per_epoch=5, durability=durability(kind, memory))
    inprocess.run(query(out).plan(buckets=4), root, options, between=between)


def template(folder: Path, kind: str) -> Path:
    """Make a checkpoint as a run leaves it, once in a process; it goes with the folder of all cases."""
    made = folder.parent / f"template-{kind}-{os.getpid()}"
    if not made.exists():
        run(made / "ckpt", made / "out", made / "memory", kind, 2, kill=True)
        state.save(made / "ckpt", "before")
    return made


def run_case(seed: int, folder: Path) -> str | None:
    """Damage a checkpoint in one to three places, and do something with it."""
    random = Random(seed)
    kind = random.choice(["epoch", "never"])
    made, root, outside = template(folder, kind), folder / "ckpt", folder / "outside"
    shutil.copytree(made / "ckpt", root)
    for name, content in OWN.items():
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_bytes(content)
    shutil.copytree(outside / "state", folder / "state")
    files = [f for f in root.rglob("*") if f.is_file() and f.suffix not in (".arrow", ".parquet", ".blob")]
    files = sorted(f for f in files if f.name != "lock")
    chosen = random.sample(files, random.randint(1, min(3, len(files))))
    for path in chosen:
        damage(random, path, outside)
    names = [str(path.relative_to(root)) for path in chosen]
    for what in random.sample(sorted(ACTS), 3):
        try:
            ACTS[what](root, folder)
        except (st.SpringtideError, CommandError) as error:
            if not str(error) or "Traceback" in str(error):
                return f"{what}, {names}: an error that says nothing: {error!r}"
        except Exception as error:
            return f"{what}, {names}: {type(error).__name__}: {error}"
        for name, content in OWN.items():
            if not (outside / name).exists() or (outside / name).read_bytes() != content:
                return f"{what}, {names}: {name} is not what it was"
        if not (folder / "state" / "own.arrow").exists():
            return f"{what}, {names}: a file beside the checkpoint is gone"
    return None


def _start(root: Path, folder: Path) -> None:
    run(root, folder / "out", folder / "memory", "epoch", 6)


def _quietly(act: Callable[[], Any]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        act()


ACTS: dict[str, Callable[[Path, Path], Any]] = {
    "start": _start,
    "start from the savepoint": lambda root, folder: begin_from(
        root / "savepoints" / "before", query(folder / "out").plan(buckets=4), folder / "adopted"
    ),
    "status": lambda root, folder: _quietly(lambda: status(root)),
    "state": lambda root, folder: _quietly(lambda: show_state(root)),
    "state of a step": lambda root, folder: _quietly(lambda: show_state(root, "sums")),
    "history": lambda root, folder: _quietly(lambda: history(root)),
    "list": lambda root, folder: _list(root),
    "verify": lambda root, folder: verify(root),
    "copy": lambda root, folder: state.backup(root, folder / "copy"),
    "restore": lambda root, folder: state.restore(root, folder / "restored"),
    "save": lambda root, folder: state.save(root, "again"),
    "checkpoint": lambda root, folder: state.checkpoint(root),
    "trim": lambda root, folder: state.trim(root, keep=1),
    "spill": lambda root, folder: state.spill(root),
}


def _list(root: Path) -> None:
    _quietly(lambda: list_(str(root)))
