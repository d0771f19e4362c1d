"""Who calls the workers, and when."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import pytest

from springtide.runtime.spark import warmth
from springtide.runtime.spark.warmth import Warmth
from tests.machine import LONG


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmth, "_LOOK", 0.001)


def test_workers_are_called_at_the_start_and_where_there_are_new_slots() -> None:
    called: SimpleQueue[int] = SimpleQueue()
    slots = 2
    kept = Warmth(lambda: slots, called.put)
    assert called.get(timeout=LONG) == 2
    slots = 5
    assert called.get(timeout=LONG) == 5
    kept.close()
    assert called.empty(), "the same slots are not called again at once"


def test_workers_are_called_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmth, "EVERY", 0.001)
    called: SimpleQueue[int] = SimpleQueue()
    kept = Warmth(lambda: 2, called.put)
    assert [called.get(timeout=LONG) for _ in range(3)] == [2, 2, 2]
    kept.close()


def test_a_call_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmth, "EVERY", 0.001)
    called = threading.Semaphore(0)

    def call(workers: int) -> Any:
        called.release()
        raise RuntimeError("an executor was lost")

    kept = Warmth(lambda: 2, call)
    for _ in range(2):
        assert called.acquire(timeout=LONG)
    kept.close()


def test_the_end_waits_for_a_call_that_is_under_way() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def call(workers: int) -> None:
        begun.set()
        assert may_end.wait(LONG)
        ended.set()

    kept = Warmth(lambda: 2, call)
    assert begun.wait(LONG)
    threading.Timer(0.05, may_end.set).start()
    kept.close()
    assert ended.is_set()
