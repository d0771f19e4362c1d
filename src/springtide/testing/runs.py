"""Runs of a query in this process that can be stopped or killed, shared by the test suites for connectors."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from springtide.connectors.failpoints import watched
from springtide.runtime.engine import Engine
from springtide.runtime.inprocess import execute
from springtide.runtime.options import Options
from springtide.runtime.query import Query
from springtide.state.checkpoint import Checkpoint


class Killed(BaseException):
    """The process is gone: nothing that it would have done will happen."""


@dataclass
class Runs:
    """Runs of a query on one checkpoint."""

    root: Path
    rows_per_epoch: int = 3

    def run(self, query: Query, epochs: int | None = None) -> bool:
        """Run until there is nothing left to do, or for this many epochs, and stop. Return False if it was killed on the way."""
        plan = query.plan(buckets=2)
        options = Options(1, rows_per_epoch=self.rows_per_epoch)
        engine = Engine(plan, Checkpoint(self.root), lambda epoch: execute(plan, epoch), options)
        try:
            try:
                engine.begin()
                while not engine.manifest.ended and (epochs is None or epochs > 0) and engine.has_work():
                    engine.run()
                    epochs = None if epochs is None else epochs - 1
            except Exception:
                engine.close()
                raise
            engine.close()
        except Killed:
            engine.storage.lease.release()  # as the system does with everything that a process had open
            del engine, plan, options
            gc.collect()  # connections too
            return False
        return True

    def run_killed(self, query: Query, place: str, visit: int) -> None:
        """Run, and be killed at the given visit to a place."""
        visits: Counter[str] = Counter()

        def die(here: str) -> None:
            visits[here] += 1
            if here == place and visits[here] == visit:
                raise Killed

        with watched(die):
            self.run(query)

    def visits(self, query: Query) -> Counter[str]:
        """Run to the end; return how often each place was visited."""
        visits: Counter[str] = Counter()
        with ExitStack() as stack:
            stack.enter_context(watched(lambda place: visits.update([place])))
            self.run(query)
        return visits


def told(what: str, check: Callable[[], None]) -> None:
    """Run a part of a suite, and name the part in any error."""
    try:
        check()
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
