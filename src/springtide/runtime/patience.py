"""Temporary faults: a call that fails because something outside is unavailable is tried again for a while, and people can see it.

    fails ── 0.1 s ── fails ── 0.2 s ── fails ── 0.4 s ── … ── 5 s ── fails: patience is over, the run ends
                                            └── works: the run goes on, and says for how long it could not

Nothing depends on how often something is tried: an epoch that is run again writes new files, a manifest is written once, and a sink
knows an epoch by its number.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import polars as pl

from springtide.query.errors import SpringtideError, UnavailableError
from springtide.query.plurals import plural
from springtide.state.errors import AwayError

FIRST = 0.1
"""Seconds before something is tried again for the first time; then twice as many, and so on."""
LONGEST = 5.0
"""Seconds between two attempts at most."""
_LOOK = 0.2
"""Seconds between two checks whether the run should stop."""

_FRAME = re.compile(r"at \S+\(|File \"|Traceback |\.\.\. \d+ more|JVM stacktrace|[\^~]+$")
"""Lines of stack traces, of Java and of Python."""
_NAMED = re.compile(r"(: )?[\w.]*(Error|Exception)\b")
_LONG = 600
"""The most characters of an error's own message."""

T = TypeVar("T")


def of_the_outside(error: Exception) -> bool:
    """Return whether an error says that a file, a disk or a process was unavailable: it may be back soon."""
    os_error = isinstance(error, pl.exceptions.PolarsError) and "(os error" in str(error)
    return isinstance(error, OSError | UnavailableError | AwayError) or os_error


def of_a_connector(error: Exception) -> bool:
    """Return whether an error of a source or a sink may be temporary: all except those that say what is wrong with the query or the data."""
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
        """Keep trying for a number of seconds after the first failure; 0: try only once."""
        self._seconds, self._note, self._to_stop, self._timer = seconds, note, to_stop, timer
        self._over = threading.Event()

    def end(self) -> None:
        """Stop waiting, since the run should stop. For another thread to call."""
        self._over.set()

    def attempt(self, step: str, action: Callable[[], T], passes: Callable[[Exception], bool] = of_the_outside) -> T:
        """Do something until it works; raise an error that is not temporary, or that lasts too long."""
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

    def wait(self, seconds: float) -> bool:
        """Wait for something that is no fault; False: the run is to stop."""
        self._wait(seconds)
        return not self._is_over()

    def _wait(self, seconds: float) -> None:
        until = self._timer() + seconds
        while not self._is_over() and (left := until - self._timer()) > 0:
            self._over.wait(min(left, _LOOK))

    def _is_over(self) -> bool:
        if not self._over.is_set() and self._to_stop():
            self._over.set()
        return self._over.is_set()


def said(error: BaseException) -> str:
    """Return one line with what an error says, and what caused it.

    >>> said(OSError("the disk is full"))
    'OSError: the disk is full'
    >>> said(
    ...     RuntimeError(
    ...         "An error occurred while calling o7.save.\\n: SparkException: Job aborted\\n\\tat org.Job(Job.scala:7)\\nCaused by: IOException: full"
    ...     )
    ... )
    'RuntimeError: An error occurred while calling o7.save. … Caused by: IOException: full'
    """
    parts: list[str] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = _what_matters(str(error))
        parts.append(f"{type(error).__name__}: {text}" if text else type(error).__name__)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)  # type: ignore[assignment]
    return ", caused by ".join(parts)


def _what_matters(text: str) -> str:
    """Leave out stack traces: keep the first line, and of the rest the last that names a cause."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not _FRAME.match(line)]
    causes = [line for line in lines[1:] if line.startswith("Caused by: ") or _NAMED.match(line)]
    return _cut(lines[0] + (f" … {causes[-1].removeprefix(': ')}" if causes else "")) if lines else ""


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[: _LONG // 2]} … {text[-_LONG // 2 :]}"


def _tried(failures: int, seconds: float) -> str:
    return f"{plural(failures, 'failure')} in {seconds:.1f} s"
