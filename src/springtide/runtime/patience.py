"""Faults that pass: what fails because something outside is not there is tried again for a while, and people can see it.

    fails ── 0.1 s ── fails ── 0.2 s ── fails ── 0.4 s ── … ── 5 s ── fails: patience is over, the run ends
                                            └── works: the run goes on, and says for how long it could not

Nothing depends on how often something is tried: an epoch that is run again writes new files, a manifest is written once, and a sink
knows an epoch by its number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import polars as pl

from springtide.query.errors import SpringtideError, UnavailableError
from springtide.state.errors import AwayError

FIRST = 0.1
"""Seconds before something is tried again for the first time; then twice as many, and so on."""
LONGEST = 5.0
"""Seconds between two attempts at most."""
_LOOK = 0.2
"""Seconds between two looks whether the run is to stop."""

T = TypeVar("T")


def of_the_outside(error: Exception) -> bool:
    """Tell whether an error says that a file, a disk or a process was not there: it may be back soon."""
    os_error = isinstance(error, pl.exceptions.PolarsError) and "(os error" in str(error)
    return isinstance(error, OSError | UnavailableError | AwayError) or os_error


def of_a_connector(error: Exception) -> bool:
    """Tell whether an error of a source or a sink may pass: all but those that say what is wrong with the query or the data."""
    return of_the_outside(error) or not isinstance(error, SpringtideError)


class Patience:
    """How long a run waits for what fails, and what it says meanwhile."""

    def __init__(
        self,
        seconds: float,
        note: Callable[[str], None],
        to_stop: Callable[[], bool] = lambda: False,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        """Try for so many seconds after something failed first; 0 is once and not again."""
        self._seconds, self._note, self._to_stop, self._timer = seconds, note, to_stop, timer
        self._over = threading.Event()

    def end(self) -> None:
        """Wait for nothing any more: the run is to stop. For another thread."""
        self._over.set()

    def attempt(self, step: str, action: Callable[[], T], passes: Callable[[Exception], bool] = of_the_outside) -> T:
        """Do something until it works; an error that does not pass, or that has not passed in time, is raised."""
        began, pause, failures = 0.0, FIRST, 0
        while True:
            try:
                done = action()
            except Exception as error:
                if not passes(error):
                    raise
                now, failures = self._timer(), failures + 1
                began = now if failures == 1 else began
                step, problem = (
                    (error.step, error.problem) if isinstance(error, UnavailableError) else (step, said(error))
                )
                left = began + self._seconds - now
                if left <= 0 or self._is_over():
                    raise UnavailableError(step, problem, _tried(failures, now - began)) from error
                if failures == 1:
                    self._note(f"step {step}: {problem}; it is tried again for {self._seconds:g} s")
                self._wait(min(pause, left))
                pause = min(2 * pause, LONGEST)
            else:
                if failures:
                    self._note(f"step {step}: works again, after {_tried(failures, self._timer() - began)}")
                return done

    def _wait(self, seconds: float) -> None:
        until = self._timer() + seconds
        while not self._is_over() and (left := until - self._timer()) > 0:
            self._over.wait(min(left, _LOOK))

    def _is_over(self) -> bool:
        if not self._over.is_set() and self._to_stop():
            self._over.set()
        return self._over.is_set()


def said(error: Exception) -> str:
    """Say in one line what an error says."""
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0]}" if first else type(error).__name__


def _tried(failures: int, seconds: float) -> str:
    return f"{failures} failure{'s' if failures > 1 else ''} in {seconds:.1f} s"
