"""What failures of Spark mean: what people are told, and whether another try may succeed, since something outside was unavailable or processes died."""

from __future__ import annotations

import re

from py4j.protocol import Py4JNetworkError

from springtide.query.errors import SpringtideError, UnavailableError

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


def failure_of_epoch(error: BaseException) -> SpringtideError:
    """Return the error with which a failed job ends the run."""
    if isinstance(error, SpringtideError):
        return error
    if is_gone(error):
        return _ended(GONE, error)
    return _ended(f"the epoch failed and was not committed: {line_that_matters(error)}", error)


def failure_of_spark(error: BaseException) -> SpringtideError:
    """Return the error of Spark itself outside an epoch: an offset that it could not write, or one of its own sources."""
    return _ended(f"Spark has ended the query: {str(error).strip().partition(chr(10))[0]}", error)


def line_that_matters(error: BaseException) -> str:
    """Return the line that matters in what Spark says about a failed job.

    >>> trace = "Job aborted.\\n  at org.apache.Spark\\nspringtide.query.errors.QueryError: step a (map): no\\n  at java.lang.Thread"
    >>> line_that_matters(RuntimeError(trace))
    'step a (map): no'
    """
    if isinstance(error, SpringtideError):
        return str(error)
    said = (line.strip() for line in str(error).splitlines())
    lines = [line for line in said if line and not line.startswith("at ")]  # Java's stack trace is of no use here
    ours = [line for line in lines if line.startswith("springtide.") and "Error: " in line]
    named = [line for line in lines if "Error" in line.partition(":")[0]]
    return ours[-1].partition(": ")[2] if ours else named[-1] if named else repr(error)


def _ended(problem: str, error: BaseException) -> SpringtideError:
    failure = SpringtideError(f"{problem}; the next start continues from the last committed epoch")
    failure.__cause__ = error
    return failure
