"""The kind `forgetful_disk`: power cuts at any moment, after which a disk has what it was told to keep, and of the rest whatever it likes.

    content     as it was when the file was last flushed; of what was written since all, a part or nothing
    names       as they were when their folder was last flushed; each that was made, renamed or removed since may be so, or not
    memory      gone

The checkpoint, its backup if there is one and the folders of the sinks are on the disk. Or the checkpoint is in a store that misbehaves, and the disk has a node's cache of it. In the end the
sinks have every row once, and the checkpoint is whole.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import polars as pl

import springtide as st
from springtide.runtime import inprocess, persisting
from springtide.runtime.engine import Engine, Options
from springtide.state import disk, mirror, tiers
from springtide.state.verifying import verify
from tests.stores.in_turn import in_turn
from tests.stores.misbehaving import Misbehaving, served

_STORE = "fake://bucket/checkpoint"
CUTS = 3
"""At most so many power cuts in a case."""
_CALLS = ("link", "rename", "replace", "unlink", "mkdir")
"""Calls before which the power may fail, besides those that flush."""

Names = dict[str, int]
"""What a folder has: names, and which file or folder each is of."""


class Off(BaseException):
    """The power failed: the process is gone, and nothing of what it would have done comes."""


class ForgetfulDisk:
    """A folder that is on a disk which keeps only what it was told to keep."""

    def __init__(self, root: Path, random: Random) -> None:
        """Begin with an empty folder."""
        self.root, self._random = root, random
        self._left: int | None = None
        self._off = False
        self._held: list[int] = []
        root.mkdir()
        self._begin()

    def cut_after(self, moments: int) -> None:
        """Let the power fail after so many calls that change something."""
        self._left = moments

    def moment(self) -> None:
        """Let the power fail, if it is to fail now; what is done after that has never happened."""
        if self._off:
            raise Off
        if self._left is None:
            return
        self._left -= 1
        if self._left < 0:
            self.cut()
            raise Off

    def cut(self) -> None:
        """Let the power fail now: from here on nothing reaches the disk."""
        self._newest, self._written = self._look()
        self._off, self._left = True, None

    def restart(self) -> None:
        """Have the disk as it comes up again."""
        tree = self._folder(self._ino(self.root))
        for descriptor in self._held:
            os.close(descriptor)
        shutil.rmtree(self.root)
        _write(self.root, tree)
        self._begin()

    def keeps(self, path: Path) -> bool:
        """Tell whether a file would be there, whole, if the power failed now."""
        kept = self._kept(path)
        return kept is not None and kept == self._ino(path) and self._content.get(kept, b"") == path.read_bytes()

    def may_have(self, path: Path) -> bool:
        """Tell whether there could be a file of this name if the power failed now."""
        return path.exists() or self._kept(path) is not None

    def _kept(self, path: Path) -> int | None:
        at: int | None = self._ino(self.root)
        for name in path.relative_to(self.root).parts:
            at = self._names.get(at, {}).get(name) if at is not None else None
        return at

    def at_work(self) -> ExitStack:
        """Have all that this process does be done on this disk."""
        stack = ExitStack()
        stack.enter_context(mock.patch.object(os, "fsync", self._fsync))
        for name in _CALLS:
            stack.enter_context(mock.patch.object(os, name, self._before(getattr(os, name))))
        return stack

    # ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        """Take what is there for what is kept."""
        self._held, self._off = [], False
        self._names, self._content = self._look()
        for path in (self.root, *self.root.rglob("*")):
            self._hold(os.open(path, os.O_RDONLY))

    def _fsync(self, descriptor: int) -> None:
        self.moment()
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = {}
            for entry in os.scandir(descriptor):
                self._names[found.st_ino][entry.name] = entry.inode()
                self._hold(os.open(entry.name, os.O_RDONLY, dir_fd=descriptor))
        else:
            self._content[found.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()
        self._hold(os.dup(descriptor))

    def _hold(self, descriptor: int) -> None:
        """Keep the number of a file or folder from being given to another."""
        self._held.append(descriptor)

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*given: Any, **more: Any) -> Any:
            self.moment()
            return call(*given, **more)

        return calling

    def _look(self) -> tuple[dict[int, Names], dict[int, bytes]]:
        """Look at all that is there now."""
        names, content = dict[int, Names](), dict[int, bytes]()
        for path in (self.root, *self.root.rglob("*")):
            if path.is_dir():
                names[self._ino(path)] = {entry.name: entry.inode() for entry in os.scandir(path)}
            else:
                content[self._ino(path)] = path.read_bytes()
        return names, content

    @staticmethod
    def _ino(path: Path) -> int:
        return os.stat(path).st_ino

    # ── what comes back ───────────────────────────────────────────────────────────────────────────────────────────

    def _folder(self, ino: int) -> dict[str, Any]:
        """Give a folder with all below it."""
        kept, newest = self._names.get(ino, {}), self._newest.get(ino, {})
        found = {}
        for name, one in sorted(self._chosen(kept, newest).items()):
            is_folder = one in self._newest or one in self._names
            found[name] = self._folder(one) if is_folder else self._file(one)
        return found

    def _chosen(self, kept: Names, newest: Names) -> Names:
        """Choose for each change of names whether the disk has it. A rename is one change: a file is never without a name, nor a name without a file."""
        chosen: Names = {}
        for names in _together(kept, newest):
            side = kept if self._random.random() < 0.5 else newest
            chosen |= {name: side[name] for name in names if name in side}
        return chosen

    def _file(self, ino: int) -> bytes:
        kept, written = self._content.get(ino), self._written.get(ino, b"")
        if kept == written or ino not in self._written:
            return kept or b""
        cut = written[: self._random.randrange(len(written) + 1)]
        return self._random.choice([kept or b"", kept or b"", cut, written])


def _together(kept: Names, newest: Names) -> Iterator[list[str]]:
    """Put those names together that one change is about: that were of one file, or are."""
    files: dict[str, set[int]] = {n: {s[n] for s in (kept, newest) if n in s} for n in sorted(kept | newest)}
    while files:
        name, inos = files.popitem()
        group = [name]
        while more := [n for n, i in files.items() if i & inos]:
            group += more
            inos = inos.union(*(files.pop(n) for n in more))
        yield group


def _write(folder: Path, tree: Mapping[str, Any]) -> None:
    folder.mkdir()
    for name, what in tree.items():
        if isinstance(what, bytes):
            (folder / name).write_bytes(what)
        else:
            _write(folder / name, what)


# ── cases ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def run_case(seed: int, folder: Path) -> str | None:
    """Run a query through some power cuts; compare what the sinks have with the reference."""
    random = Random(seed)
    memory, log = folder / "memory", list[str]()
    forgetful = ForgetfulDisk(folder / "disk", random)
    rows = [(f"k{random.randrange(3)}", random.randrange(9), i * 1_000_000) for i in range(random.randint(3, 9))]
    query = _query(rows, forgetful.root, random)
    plan, remote = query.plan(buckets=4), random.random() < 0.25
    root: Path | str = _STORE if remote else forgetful.root / "deep" / "checkpoint"
    backup = forgetful.root / "backup" if random.random() < 0.3 and not remote else None
    places: dict[str, Any] = (
        {"cache": forgetful.root / "node"} if remote else {"backup": backup, "shared_memory": memory}
    )
    every = random.choice(["epoch", "epoch", "3s"])
    bucket = Misbehaving(seed, trouble=random.choice([0.0, 0.2]))
    with served(bucket=bucket), in_turn(), _in_order():
        for _ in range(random.randint(1, CUTS)):
            forgetful.cut_after(random.randrange(random.choice([40, 150])))
            durability = st.Durability(every, **places, retain=random.choice([1, 3]))
            options = Options(
                random.choice([1, 1, 2]),
                rows_per_epoch=random.choice([1, 2, 3, 9]),
                durability=durability,
                timer=_timer(),
            )
            log.append(_run(plan, root, options, forgetful))
            forgetful.restart()
            shutil.rmtree(memory, ignore_errors=True)
            disk._named.clear()  # what another process knew
            tiers._whole.clear()
        inprocess.run(plan, root, Options(1, rows_per_epoch=5, durability=st.Durability(**places)))
        bucket.trouble = 0.0
        kept = backup or root  # with a backup the folder need not have everything
        how = "store" if remote else f"backup {backup is not None}"
        return _compare(query, forgetful.root, kept, f"{how}, {every}: {', '.join(log)}")


def _run(plan: Any, root: Path | str, options: Options, forgetful: ForgetfulDisk) -> str:
    """Run until the power fails, at the latest when all is done and the run has ended well."""
    engine: Engine | None = None
    with forgetful.at_work():
        try:
            where = options.durability.checkpoint(root)
            engine = Engine(plan, where, lambda epoch: inprocess.execute(plan, epoch), options)
            engine.begin()
            while not engine.manifest.ended:
                assert engine.has_work()
                forgetful.moment()
                engine.run()
            engine.close()
            forgetful.cut()
            return "ended"
        except Off:
            if engine is None:
                return "off at the start"
            engine.storage.lease.release()  # as the system does with what a process had open
            return f"off after epoch {engine.manifest.epoch}"


def _compare(query: st.Query, disk: Path, checkpoint: Path | str, log: str) -> str | None:
    expected = query.run_reference()
    for name in sorted(expected.sinks):
        wanted = expected.rows(name)
        found = pl.concat([wanted.clear(), *(pl.read_parquet(f) for f in sorted((disk / name).glob("*.parquet")))])
        if not found.sort(pl.all()).equals(wanted.sort(pl.all())):
            return f"{name}: {found.height} rows, not {wanted.height}, after {log}\n{found.sort(pl.all())}\n{wanted.sort(pl.all())}"
    seen = verify(checkpoint)
    if seen.damaged or seen.unaccounted:
        return f"{seen.damaged}, {seen.unaccounted}, after {log}"
    return None


def _query(rows: list[tuple[str, int, int]], folder: Path, random: Random) -> st.Query:
    frame = pl.DataFrame(rows, schema={"k": pl.String, "x": pl.Int64, "ts": pl.Int64}, orient="row")
    schema = {"k": pl.String, "x": pl.Int64, "ts": st.TIME}
    source = st.source("rows", st.memory(frame.cast({"ts": st.TIME}), schema=schema), ts="ts")
    sums = source.aggregate(by="k", window=st.tumbling("3s"), total=st.sum("x"), name="sums")
    sinks = [sums.to(st.parquet_sink(folder / "windows"), name="windows")]
    if random.random() < 0.5:
        sinks.append(source.to(st.parquet_sink(folder / "copies"), name="copies"))
    return st.Query("forgetful", *sinks)


def _timer() -> Callable[[], float]:
    """A second for every look."""
    looks = itertools.count()
    return lambda: float(next(looks))


class AtOnce:
    """Does the work of another thread when it is told to begin: so everything happens in one order."""

    def __init__(
        self, *_: Any, target: Callable[..., None] | None = None, args: tuple[Any, ...] = (), **__: Any
    ) -> None:
        self._target, self._args = target, args

    def start(self) -> None:
        assert self._target is not None
        self._target(*self._args)

    def submit(self, work: Callable[..., None], *given: Any) -> None:
        work(*given)

    def map(self, work: Callable[..., Any], *given: Iterable[Any]) -> Iterator[Any]:
        return map(work, *given)

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *_: object) -> None:
        """It is done."""

    def join(self) -> None:
        """It is done."""

    def is_alive(self) -> bool:
        return False

    def shutdown(self, wait: bool) -> None:
        """It is done."""


def _in_order() -> ExitStack:
    stack = ExitStack()
    stack.enter_context(mock.patch.object(persisting, "threading", SimpleNamespace(Thread=AtOnce)))
    stack.enter_context(mock.patch.object(mirror, "ThreadPoolExecutor", AtOnce))
    return stack
