"""Tells open pages what is new. Nothing is read while nobody looks."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from springtide.ui.watching import Watched

EVERY = 0.5
"""Seconds between two looks at a checkpoint in a folder."""
EVERY_IN_STORE = 5.0
_ALIVE = 15.0
"""Seconds after which a page is told that there is nothing new."""
_AWAKE = 0.1
"""Seconds between two checks of a page whether there is something new, or the server is stopping."""


class Live:
    """One checkpoint, and the pages that show it."""

    def __init__(self, watched: Watched, stopping: Callable[[], bool]) -> None:
        """Look at nothing yet; `stopping` tells whether the server is stopping, which does not wait for pages that only listen."""
        self.watched, self._stopping = watched, stopping
        self._every = EVERY if watched.files.is_local else EVERY_IN_STORE
        self._pages = 0
        self._text: str | None = None
        self._count = 0
        self._task: asyncio.Task[None] | None = None

    async def follow(self) -> AsyncIterator[str]:
        """Yield the server-sent events of one page: the query as it is, again whenever something has changed."""
        self._pages += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        seen, silent = 0, 0.0
        try:
            yield "retry: 1000\n\n"
            while not self._stopping():
                if self._text is not None and self._count != seen:
                    seen, silent = self._count, 0.0
                    yield f"event: now\ndata: {self._text}\n\n"
                elif silent >= _ALIVE:
                    silent = 0.0
                    yield ": nothing new\n\n"
                else:
                    await asyncio.sleep(_AWAKE)  # a page that is closed is cancelled here, and nowhere is that caught
                    silent += _AWAKE
        finally:
            self._pages -= 1

    async def _look(self) -> None:
        first = True
        while self._pages and not self._stopping():
            changed = await asyncio.to_thread(self.watched.refresh)
            if changed or self._text is None:
                await self._tell()
            if first or self.watched.is_whole:  # the first view is drawn before anything earlier is read
                first = False
                await asyncio.sleep(self._every)
            else:
                until = time.monotonic() + self._every  # pages need not draw every piece
                while not self.watched.is_whole and time.monotonic() < until:
                    await asyncio.to_thread(self.watched.fill)
                await self._tell()
        self._text = None  # it may be old when the next page comes

    async def _tell(self) -> None:
        text = await asyncio.to_thread(lambda: encoded(self.watched.now()))
        self._text, self._count = text, self._count + 1


def encoded(value: Any) -> str:
    """Write JSON that browsers read: a number that JSON does not have is null.

    >>> encoded({"a": [1.5, float("nan")]})
    '{"a":[1.5,null]}'
    """
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(held) for key, held in value.items()}
    return [_finite(held) for held in value] if isinstance(value, list | tuple) else value
