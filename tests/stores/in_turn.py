"""What a run does in the background on a checkpoint in a store is done in its turn: so the seed of a case decides all of it, and not how fast the machine is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

from springtide.query.errors import SpringtideError
from springtide.runtime import recovering, storage
from springtide.state import mirror, tiers, uploads
from springtide.state.caches import Cache
from springtide.state.stores import Store


class Sweeper:
    """Does what it is given at once; that it failed nobody hears, as of a thread, unless it is asked for what came of it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, work: Callable[..., None], *given: Any) -> None:
        with suppress(Exception):
            work(*given)

    def map(self, work: Callable[..., Any], *given: Iterable[Any]) -> Iterator[Any]:
        return map(work, *given)

    def shutdown(self, wait: bool) -> None:
        """It is done."""

    def __enter__(self) -> Sweeper:
        return self

    def __exit__(self, *_: object) -> None:
        """It is done."""


def in_turn(random: Random | None = None, late: float = 0.0) -> ExitStack:
    """Have segments go to the store at once, or, with a share that is `late`, never by themselves; nothing is waited for."""

    def uploading(store: Store, cache: Cache) -> Any:
        def begin(file: str) -> None:
            if random is None or random.random() >= late:
                with suppress(OSError, SpringtideError):  # it is not there then, and is made anew
                    store.put(cache.place() / file, file)

        return SimpleNamespace(begin=begin)

    stack = ExitStack()
    for owner, name, instead in (
        (mirror, "ThreadPoolExecutor", Sweeper),
        (uploads, "uploads", uploading),
        (tiers, "uploads", uploading),
        (tiers, "_ARRIVES", 0.0),
        (recovering, "_ARRIVES", 0.0),
        (storage, "Relay", mock.Mock()),
        (storage, "Pulse", mock.Mock()),
    ):
        stack.enter_context(mock.patch.object(owner, name, instead))
    return stack
