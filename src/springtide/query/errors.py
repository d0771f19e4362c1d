"""The one error that a wrong query raises: which step, what is wrong, what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SpringtideError(Exception):
    """The parent of every error that Springtide raises on purpose.

    >>> issubclass(st.QueryError, st.SpringtideError)
    True
    """


class QueryError(SpringtideError):
    """A mistake in a query, found while it is built.

    >>> raise st.QueryError("heavy (aggregate)", "there is no column 'sorce'", "did you mean 'source'?")
    Traceback (most recent call last):
    springtide.query.errors.QueryError: step heavy (aggregate): there is no column 'sorce'; did you mean 'source'?
    """

    def __init__(self, step: str, problem: str, hint: str) -> None:
        """Keep the three parts, and say them in one line."""
        self.step, self.problem, self.hint = step, problem, hint
        super().__init__(f"step {step}: {problem}; {hint}")

    def __reduce__(self) -> tuple[type[QueryError], tuple[str, str, str]]:
        """Survive a trip between processes."""
        return type(self), (self.step, self.problem, self.hint)


def nearest(name: str, names: Iterable[str]) -> str:
    """Say which of `names` was probably meant, or list them.

    >>> nearest("sorce", ["ts", "source"])
    "did you mean 'source'?"
    >>> nearest("x", ["ts", "source"])
    'there are: source, ts'
    """
    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(names) or 'none'}"
