"""When state is made durable, and where: a choice for each query (SE-4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any
from warnings import warn

from springtide.query.errors import QueryError
from springtide.query.places import local, without_secrets
from springtide.query.types import Length, micros_of
from springtide.query.usage import usage_of
from springtide.state import private
from springtide.state.caches import LIMIT, Cache
from springtide.state.checkpoint import Checkpoint
from springtide.state.stores import Store
from springtide.state.tiers import Tiers

EPOCH, NEVER = "epoch", "never"
RETAIN = 10
_WHERE = "(durability)"


@usage_of("st.Durability(every='5s', backup='backup/')", "(durability)")
@dataclass(frozen=True)
class Durability:
    """When the state of a query is made durable, and where. Whatever is chosen, every row comes out exactly once.

    >>> st.Durability(every="5s").seconds
    5.0
    >>> st.Durability(every="soon")
    Traceback (most recent call last):
    springtide.query.errors.QueryError: step (durability): every: 'soon' is not a length of time; write for example '10s', '1h30m' or '250ms' (units us, ms, s, m, h, d, w)
    """

    every: Length = EPOCH
    """"epoch": with every epoch. A length of time ("5s"): in the background, that often; in between it is in shared memory, and what came in since
    is kept (the buffer state) so that epochs can be done again. "never": a recovery does everything again."""
    backup: str | Path | None = field(default=None, repr=False)
    """A store for everything that a start on another machine needs: a folder, or the address of an object store, such as "s3://bucket/folder"."""
    retain: int = RETAIN
    """How many checkpoints are kept, for `springtide checkpoint restore --at`."""
    degree: int = 1
    """How many instances take over from one that lost its state (SE-3)."""
    shared_memory: str | Path | None = None
    """A folder for state that is not durable yet: a run makes a folder of its own in it, and removes that; on a cluster, all executors must see it.
    Without it: this machine's shared memory."""
    buffer: bool = False
    """Keep what the prefixes send, even if it could be read again from the source (upstream backup)."""
    cache: str | Path | None = None
    """If the checkpoint is in an object store: the folder in which each node keeps what it needs of it. `SPRINGTIDE_CACHE` on a node overrides it
    there; without either, it is the folder for temporary files."""
    cache_bytes: int = LIMIT
    """How many bytes of state are kept on each node."""

    memory: InitVar[str | Path | None] = None
    """The old name of `shared_memory`."""

    def __post_init__(self, memory: str | Path | None) -> None:
        """Refuse what makes no sense."""
        if memory is not None:
            warn("st.Durability(memory=…) is called shared_memory= now", DeprecationWarning, stacklevel=4)
            object.__setattr__(self, "shared_memory", memory)
        if self.every not in (EPOCH, NEVER) and not micros_of(_WHERE, self.every, "every") > 0:
            raise QueryError(_WHERE, f"every={self.every!r} is not longer than zero", 'write it like "5s", or "epoch"')
        if self.shared_memory is not None and local(self.shared_memory) is None:
            where = without_secrets(self.shared_memory)
            hint = "give a folder; state goes to an object store by backup="
            raise QueryError(_WHERE, f"shared_memory={where!r} is not a folder of a mounted file system", hint)
        if self.cache is not None and local(self.cache) is None:
            where, hint = without_secrets(self.cache), "give a folder on a disk of each node"
            raise QueryError(_WHERE, f"cache={where!r} is not a folder of a mounted file system", hint)
        for name in ("retain", "degree", "cache_bytes"):
            if getattr(self, name) < 1:
                raise QueryError(_WHERE, f"{name}={getattr(self, name)} is too few", "give at least 1")

    @property
    def seconds(self) -> float:
        """The time between two checkpoints; 0: every epoch is one."""
        if self.every == EPOCH:
            return 0.0
        return math.inf if self.every == NEVER else micros_of(_WHERE, self.every, "every") / 1e6

    def tiers(self, checkpoint: Checkpoint) -> Tiers:
        """Return where the files of a run on a checkpoint are."""
        root = str(checkpoint.root)
        if checkpoint.remote is not None:
            return Tiers(root, None, checkpoint.remote, checkpoint.cache, uploads_later=self.seconds > 0)
        memory = None
        if self.seconds > 0:
            memory = str(private.new(self.parent, checkpoint.root))
        return Tiers(root, memory, self.store)

    def checkpoint(self, where: str | Path, options: Mapping[str, Any] | None = None) -> Checkpoint:
        """Return the checkpoint of a run; refuse options that contradict each other."""
        cache = Cache("", None if self.cache is None else str(self.cache), self.cache_bytes)
        found = Checkpoint(where, options, cache)
        if found.remote is not None and self.backup is not None:
            raise QueryError(
                _WHERE,
                f"the checkpoint is already in an object store ({found.store.url}), and backup= is given as well",
                "leave backup= out; springtide checkpoint copy makes a second copy",
            )
        return found

    @property
    def store(self) -> Store | None:
        """The backup, if there is one."""
        return Store.at(self.backup) if self.backup is not None else None

    @property
    def parent(self) -> Path:
        """Where a run makes its folder for state that is not durable yet."""
        given = local(self.shared_memory) if self.shared_memory is not None else None
        return private.shared_memory() if given is None else given.absolute()


def durability_of(given: Durability | Length | None) -> Durability:
    """Take what a user gives: nothing, a length of time, or all settings."""
    if given is None:
        return Durability()
    return given if isinstance(given, Durability) else Durability(every=given)
