"""Which failures of a Spark job may be temporary: a task found something outside unavailable, or processes died too often in a row."""

from __future__ import annotations

import re

from py4j.protocol import Py4JNetworkError

from springtide.query.errors import UnavailableError

GONE = "Spark is gone: its JVM has ended, or no longer answers"

_OURS = re.compile(r"^\s*springtide\.query\.errors\.UnavailableError: (.*)$", re.MULTILINE)
_DIED = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "ExecutorLostFailure",
    "FetchFailedException",
)
"""What Spark says when a task was given up because its processes died, not because of what it did."""


def is_gone(error: BaseException) -> bool:
    """Return whether an error of a call to Spark says that Spark is gone."""
    return isinstance(error, Py4JNetworkError | ConnectionError | EOFError)


def passing(error: Exception, step: str) -> UnavailableError | None:
    """Return, from what Spark says about a failed job, why it is worth another try; None if it is not.

    >>> text = "Job aborted: …\\n springtide.query.errors.UnavailableError: step calls (source): OSError: gone; the next start goes on\\n at …"
    >>> passing(RuntimeError(text), "epoch 7")
    UnavailableError('step calls (source): OSError: gone; the next start continues from the last committed epoch')
    >>> passing(RuntimeError("Task 0 failed 4 times: Python worker exited unexpectedly (crashed)"), "epoch 7").problem
    'Python worker exited unexpectedly'
    >>> passing(RuntimeError("ZeroDivisionError: division by zero"), "epoch 7")
    """
    text = str(error)
    if ours := _OURS.findall(text):
        there, _, problem = ours[-1].rpartition("; the next start")[0].partition(": ")
        return UnavailableError(there.removeprefix("step "), problem)
    if "SparkContext was shut down" in text:
        return None
    died = next((words for words in _DIED if words in text), None)
    return None if died is None else UnavailableError(step, died)
