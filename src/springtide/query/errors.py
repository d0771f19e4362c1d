"""The one error that a wrong query raises: which step, what is wrong, and how to put it right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import polars as pl

from springtide.query.text import expr_text

_SHORT = 60
_MOST_NAMES = 20
"""The most names that a hint lists."""


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
        """Keep the three parts, and put them into one line."""
        self.step, self.problem, self.hint = step, problem, hint
        super().__init__(f"step {step}: {problem}; {hint}")

    def __reduce__(self) -> tuple[type[QueryError], tuple[str, str, str]]:
        """Return what pickle needs to rebuild the error in another process."""
        return type(self), (self.step, self.problem, self.hint)


class MissingColumnError(QueryError):
    """A column that does not exist."""

    def __init__(self, step: str, problem: str, hint: str, column: str = "") -> None:
        """Keep the parts, and the name of the column."""
        super().__init__(step, problem, hint)
        self.column = column


class UserCodeError(SpringtideError):
    """A mistake in a user's expression or operator, found while the query runs.

    >>> from springtide.query.errors import UserCodeError
    >>> raise UserCodeError("fold (operator)", "Fold.process gave no column 'n'", "give every column", {"ts": 5})
    Traceback (most recent call last):
    springtide.query.errors.UserCodeError: step fold (operator): Fold.process gave no column 'n'; give every column; the first such row: {'ts': 5}
    """

    def __init__(self, step: str, problem: str, hint: str, row: object = None) -> None:
        """Keep the parts, and put them into one line; `row` is the first row that the mistake shows on."""
        self.step, self.problem, self.hint, self.row = step, problem, hint, row
        where = "" if row is None else f"; the first such row: {row}"
        super().__init__(f"step {step}: {problem}; {hint}{where}")

    def __reduce__(self) -> tuple[type[UserCodeError], tuple[str, str, str, object]]:
        """Return what pickle needs to rebuild the error in another process."""
        return type(self), (self.step, self.problem, self.hint, self.row)


class UnavailableError(SpringtideError):
    """Something that a step needs, such as the files of a source, a sink or a disk, was unavailable for too long. Nothing is lost.

    >>> raise st.UnavailableError("calls (source)", "OSError: no such file", "9 failures in 60.0 s")
    Traceback (most recent call last):
    springtide.query.errors.UnavailableError: step calls (source): OSError: no such file; 9 failures in 60.0 s; the next start continues from the last committed epoch
    """

    def __init__(self, step: str, problem: str, tried: str = "") -> None:
        """Keep the parts, and put them into one line; `tried` says how often it was tried and for how long."""
        self.step, self.problem, self.tried = step, problem, tried
        parts = [f"step {step}: {problem}", tried, "the next start continues from the last committed epoch"]
        super().__init__("; ".join(filter(None, parts)))

    def __reduce__(self) -> tuple[type[UnavailableError], tuple[str, str, str]]:
        """Return what pickle needs to rebuild the error in another process."""
        return type(self), (self.step, self.problem, self.tried)


class SinkError(SpringtideError):
    """A sink that cannot take the rows of a run (its folder belongs to another query, say), and what to do about it. Nothing in it was changed.

    >>> raise st.SinkError("out (sink)", "the folder out/ belongs to the query 'calls'", "give this one another folder")
    Traceback (most recent call last):
    springtide.query.errors.SinkError: step out (sink): the folder out/ belongs to the query 'calls'; give this one another folder
    """

    def __init__(self, step: str, problem: str, hint: str) -> None:
        """Keep the three parts, and put them into one line."""
        self.step, self.problem, self.hint = step, problem, hint
        super().__init__(f"step {step}: {problem}; {hint}")

    def __reduce__(self) -> tuple[type[SinkError], tuple[str, str, str]]:
        """Return what pickle needs to rebuild the error in another process."""
        return type(self), (self.step, self.problem, self.hint)


class TakenBackError(SpringtideError):
    """A new form of a query that could not run: the old one continues as if nothing had happened.

    >>> raise st.TakenBackError("calls", "step fold (operator): Fold.process gave no column 'n'; give every column")
    Traceback (most recent call last):
    springtide.query.errors.TakenBackError: the new form of calls was taken back, and the old one continues: step fold (operator): Fold.process gave no column 'n'; give every column
    """

    def __init__(self, query: str, problem: str) -> None:
        """Keep the parts, and put them into one line."""
        self.query, self.problem = query, problem
        super().__init__(f"the new form of {query} was taken back, and the old one continues: {problem}")

    def __reduce__(self) -> tuple[type[TakenBackError], tuple[str, str]]:
        """Return what pickle needs to rebuild the error in another process."""
        return type(self), (self.query, self.problem)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint with the one of `names` that was probably meant, or else with the first ones in alphabetical order.

    >>> nearest("sorce", ["ts", "source"])
    "did you mean 'source'?"
    >>> nearest("x", ["ts", "source"])
    'there are: source, ts'
    """
    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"there are: {', '.join(names[:_MOST_NAMES])}{more}" if names else "there are none"


def no_column(step: str, name: str, names: Iterable[str], where: str = "") -> MissingColumnError:
    """Return the error for a column that does not exist, with the nearest one that does."""
    return MissingColumnError(step, f"there is no column {name!r}{where}", nearest(name, names), name)


def brief(expr: pl.Expr) -> str:
    """Return an expression as text, without its name and not too long.

    >>> brief((pl.col("end") - pl.col("start")).alias("duration"))
    'end - start'
    """
    text = expr_text(expr.meta.undo_aliases())
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


def shown(value: object) -> str:
    """Return any value as text that fits into a message.

    >>> shown("x > 1"), shown(pl.col("x") > 1), shown(print), shown(dict), shown(st.count("x")), shown(pl.DataFrame())
    ("'x > 1'", 'the expression x > 1', 'the function print', 'the class dict', 'count(x)', 'a DataFrame')
    """
    if isinstance(value, pl.Expr):
        return f"the expression {brief(value)}"
    name = getattr(value, "__name__", None)
    if isinstance(value, type):
        return f"the class {name}"
    if callable(value):
        return f"the function {name}" if name else article(type(value).__name__)
    text = str(value) if type(value).__module__.startswith("springtide.") else repr(value)
    if len(text) <= _SHORT and "\n" not in text and not text.startswith("<") and " at 0x" not in text:
        return text
    return article(type(value).__name__)


def article(noun: str) -> str:
    """Return a noun with its article.

    >>> article("int"), article("str")
    ('an int', 'a str')
    """
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"
