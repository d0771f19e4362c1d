"""The file of a query, read again while the query runs: when somebody asks for it, or when it has changed (`--reload`)."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

from springtide.cli.load import file_of, load_query, module_of
from springtide.elastic.settings import Elastic
from springtide.query.errors import SpringtideError
from springtide.runtime.patience import said
from springtide.runtime.query import Query

if TYPE_CHECKING:
    from springtide.runtime.spark.run import Run


class QueryFile:
    """`FILE` or `FILE:NAME`, with what the options say of elasticity: a policy of the user's own is read again too."""

    def __init__(
        self, where: str, policy: str | None, settings: Callable[[], Elastic | None], *, history: bool = False
    ) -> None:
        """It has just been read. With `history`, steps that are new in it later begin with the history of their sources."""
        self.history = history
        self._where, self._settings, self._reading = where, settings, threading.Lock()
        module, colon, _ = (policy or "").rpartition(":")
        self._policy = module if colon else None
        policies = [getattr(sys.modules.get(module), "__file__", None)] if colon else []
        self._files = [file_of(where), *(Path(file) for file in policies if file is not None)]
        self._seen = self._digest()

    def read(self) -> tuple[Query, Elastic | None]:
        """Read it again; what is wrong with it is told, and then everything is as before."""
        with self._reading, _kept(module_of(self._where).__name__, self._policy):
            self._seen = self._digest() or self._seen
            for policy in self._files[
                1:
            ]:  # no bytecode of before: it may be as long as it was, and changed in the same second
                Path(cache_from_source(str(policy))).unlink(missing_ok=True)
            return load_query(self._where), self._settings()

    def replace_if_changed(self, run: Run) -> None:
        """Let a run have the query as it is now, if the file is another one than before; whatever is wrong with it, the run goes on."""
        if not self.has_changed():
            return
        try:
            query, elastic = self.read()
            run.replace(query, elastic=elastic or False, history=self.history)
        except Exception as error:  # user code may raise anything
            why = str(error) if isinstance(error, SpringtideError) else said(error)
            run.note(
                f"{' or '.join(file.name for file in self._files)} has changed, but the query continues as it was: {why}"
            )

    def has_changed(self) -> bool:
        """Return whether there is another text than the one that was read last."""
        return self._digest() not in (self._seen, None)

    def _digest(self) -> tuple[bytes, ...] | None:
        """Return what tells one text from another; None while there is none, as when an editor is about to put another one in its place."""
        try:
            return tuple(hashlib.sha256(file.read_bytes()).digest() for file in self._files)
        except OSError:
            return None


class FileChanges:
    """Lets a run follow the changes of its file, in a thread: a change may have to wait, for a sink that is away, say, but Ctrl-C must be heard meanwhile."""

    def __init__(self, file: QueryFile, run: Run) -> None:
        """Nothing has changed yet."""
        self._file, self._run = file, run
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Begin to replace the query if the file is another one than before, unless an earlier change is still on its way."""
        if (self._thread is None or not self._thread.is_alive()) and self._file.has_changed():
            change = partial(self._file.replace_if_changed, self._run)
            self._thread = threading.Thread(target=change, name="springtide-reload", daemon=True)
            self._thread.start()


@contextmanager
def _kept(name: str, policy: str | None) -> Iterator[None]:
    """Have modules made anew, and if that fails, those of before."""
    names = [n for n in (name, policy) if n is not None and n in sys.modules]
    before = {n: sys.modules[n] for n in names}
    if policy is not None:
        sys.modules.pop(policy, None)
    try:
        yield
    except BaseException:
        sys.modules.update(before)
        raise
