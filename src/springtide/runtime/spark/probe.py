"""Whether all executors of a cluster see the folders of a run, or the object store that its checkpoint is in, checked before it begins, so that it does not show as lost segments later.

The driver writes a file with a random word into each folder; tasks on every executor read it, and write one of their own. An executor that comes
later is found out by its first task.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import SparkContext

from springtide.runtime.durability import Durability
from springtide.state.errors import CheckpointError
from springtide.state.names import MARKER
from springtide.state.tiers import Tiers

_NAME = ".probe-"
_TRIES = 3
"""Tasks go where Spark sends them: an executor that got none is given another chance."""
_UNHEARD = 20.0
"""Seconds without any executor, after which somebody is told."""
_HINT = "give a folder on a file system that all machines share, and that the user who runs the executors may write to"
_REACH = (
    "let executors reach the store, give them credentials (their environment, an instance role, storage_options), and let "
    "SPRINGTIDE_CACHE or st.Durability(cache=…) name a folder that they may write to"
)


class TaskView(NamedTuple):
    """What a task saw."""

    host: str
    place: str
    """The working directory: each executor has its own."""
    folder: str
    problem: str | None


def check_executors(context: SparkContext, tiers: Tiers, durability: Durability) -> None:
    """Refuse to start if an executor does not see the checkpoint, or the folder for state that is not durable yet. In local mode there is only one machine."""
    java: Any = context._jsc.sc()
    if java.isLocal():
        return

    def executors() -> int:
        return int(java.getExecutorIds().size())

    if tiers.cache is not None:
        _ask(context, Reach(tiers), executors, _REACH)
    else:
        probe(context, [Path(tiers.root), *([durability.parent] if durability.seconds > 0 else [])], executors)


def probe(context: SparkContext, folders: Iterable[Path], executors: Callable[[], int]) -> None:
    """Let tasks on all executors look at some folders."""
    words = {str(folder): secrets.token_hex(8) for folder in folders}
    try:
        for folder, word in words.items():
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{_NAME}{word}").write_text(word)
        _ask(context, Look(words), executors, _HINT)
    finally:
        for folder, word in words.items():
            for file in Path(folder).glob(f"{_NAME}{word}*"):
                with suppress(OSError):
                    file.unlink()


def _ask(
    context: SparkContext,
    look: Callable[[int, Iterable[int]], Iterator[TaskView]],
    executors: Callable[[], int],
    hint: str,
) -> None:
    """Have tasks look until all executors have, and report what one of them did not see."""
    tasks, places = max(1, context.defaultParallelism), set[tuple[str, str]]()
    for _ in range(_TRIES):
        with _told(context, executors):
            found = context.parallelize(range(tasks), tasks).mapPartitionsWithIndex(look).collect()
        for seen in found:
            places.add((seen.host, seen.place))
            if seen.problem is not None:
                raise CheckpointError(seen.folder, f"{seen.problem} on {seen.host}", hint)
        if len(places) >= executors():
            return


@contextmanager
def _told(context: SparkContext, executors: Callable[[], int]) -> Iterator[None]:
    """Say that the cluster gives no executor, if it does not for a while: Spark waits for one without a word, for as long as it takes."""

    def tell() -> None:
        if executors() == 0:
            print(without_executors(context.getConf().get), file=sys.stderr, flush=True)

    timer = threading.Timer(_UNHEARD, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def without_executors(setting: Callable[[str, str], str | None]) -> str:
    """Return what to say when there has been no executor for a while.

    >>> print(without_executors({"spark.executor.memory": "8g"}.get))
    springtide: the cluster has started no executor yet, and the query waits for one. An executor needs spark.executor.memory=8g and spark.executor.cores=1: see whether a worker has as much free.
    """
    needs = " and ".join(
        f"{name}={setting(name, usual)}"
        for name, usual in (("spark.executor.memory", "1g"), ("spark.executor.cores", "1"))
    )
    return (
        "springtide: the cluster has started no executor yet, and the query waits for one. "
        f"An executor needs {needs}: see whether a worker has as much free."
    )


@dataclass(frozen=True)
class Reach:
    """The task that looks whether an executor reaches the store of a checkpoint and has a place for its cache, as Spark ships it."""

    tiers: Tiers

    def __call__(self, task: int, nothing: Iterable[int]) -> Iterator[TaskView]:
        """Look at the store and at the cache."""
        for _ in nothing:
            pass
        assert self.tiers.backup is not None
        yield TaskView(socket.gethostname(), os.getcwd(), self.tiers.backup.url, self._problem())

    def _problem(self) -> str | None:
        tiers = self.tiers
        assert tiers.backup is not None
        try:
            own = tiers.here / f"{_NAME}{secrets.token_hex(8)}"
            own.write_text("springtide")
            own.unlink()
        except (OSError, CheckpointError) as error:
            return f"has no place for a cache ({error}) for an executor"
        try:
            tiers.backup.read(MARKER)
        except (FileNotFoundError, CheckpointError) as error:
            return f"cannot be read by an executor ({error})"
        return None


@dataclass(frozen=True)
class Look:
    """The task, as Spark ships it."""

    words: Mapping[str, str]
    """Folder → what the driver wrote there."""

    def __call__(self, task: int, nothing: Iterable[int]) -> Iterator[TaskView]:
        """Look at every folder."""
        for _ in nothing:
            pass
        for folder, word in self.words.items():
            yield TaskView(socket.gethostname(), os.getcwd(), folder, problem_of(Path(folder), word))


def problem_of(folder: Path, word: str) -> str | None:
    """Return what is wrong with a folder as this process sees it."""
    try:
        if (folder / f"{_NAME}{word}").read_text() != word:
            return "is another folder for an executor"
    except OSError as error:
        return f"is not seen by an executor ({error.strerror})"
    own = folder / f"{_NAME}{word}-{secrets.token_hex(4)}"
    try:
        own.write_text(word)
        own.unlink()
    except OSError as error:
        return f"cannot be written by an executor ({error.strerror})"
    return None


@dataclass(frozen=True)
class Sighted:
    """A stage of an epoch whose tasks begin with a look for the checkpoint: an executor that does not see it would write where nobody looks."""

    stage: Callable[[int, Iterable[Any]], Iterator[Any]]
    root: str

    def __call__(self, task: int, items: Iterable[Any]) -> Iterator[Any]:
        """Run a task."""
        if not os.path.exists(os.path.join(self.root, MARKER)):
            raise CheckpointError(self.root, f"is not seen by an executor on {socket.gethostname()}", _HINT)
        return self.stage(task, items)
