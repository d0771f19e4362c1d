"""Pages that come and go: who has closed one is told nothing more, and nothing is read for nobody."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import StreamingResponse

from springtide.ui.files import Files
from springtide.ui.live import Live

PAGES = 30


class Growing:
    """A checkpoint in which there is something new whenever somebody looks."""

    is_whole = True

    def __init__(self, files: Files) -> None:
        self.files, self.looks = files, 0

    def refresh(self) -> bool:
        self.looks += 1
        return True

    def now(self) -> dict[str, Any]:
        return {"looks": self.looks}


async def look(live: Live, closed_after: float) -> int:
    """Have a page open for a while; return how many events it got."""
    sent = 0

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(closed_after)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal sent
        sent += message["type"] == "http.response.body"

    answer = StreamingResponse(live.follow(), media_type="text/event-stream")
    await answer({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)  # type: ignore[arg-type]
    return sent


async def come_and_go(live: Live) -> list[int]:
    return await asyncio.gather(*(look(live, 0.05 + 0.02 * i) for i in range(PAGES)))


def test_pages_that_are_closed_are_told_nothing_more(tmp_path: Any) -> None:
    growing = Growing(Files.at(tmp_path))
    live = Live(growing, lambda: False)  # type: ignore[arg-type]

    async def main() -> tuple[list[int], int, int]:
        sent = await asyncio.wait_for(come_and_go(live), timeout=300)
        await asyncio.wait_for(live._task, timeout=300)  # type: ignore[arg-type] # it ends when nobody looks any more
        looks = growing.looks
        await asyncio.sleep(0.3)
        return sent, looks, growing.looks

    sent, then, later = asyncio.run(main())
    assert all(1 <= n < 1000 for n in sent)
    assert then == later
