"""Which failures of a Spark job may pass: a task met something outside that was not there, or processes died too often in a row."""

from __future__ import annotations

import re

from py4j.protocol import Py4JNetworkError

from springtide.query.errors import UnavailableError

GONE = "Spark is gone: its JVM has ended, or does not answer any more"

_OURS = re.compile(r"^\s*springtide\.query\.errors\.UnavailableError: (.*)$", re.MULTILINE)
_DIED = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "ExecutorLostFailure",
    "FetchFailedException",
)
"""What Spark says when a task was given up because its processes died, not because of what it did."""


def is_gone(error: BaseException) -> bool:
    """Return whether an error of a call to Spark says that there is no Spark any more."""
    return isinstance(error, Py4JNetworkError | ConnectionError | EOFError)


def passing(error: Exception, step: str) -> UnavailableError | None:
    """Read in what Spark says of a failed job whether it is worth another try; None if it is not.

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
