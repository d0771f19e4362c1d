"""What can be wrong with a checkpoint."""

from __future__ import annotations

from springtide.query.errors import SpringtideError


class CheckpointError(SpringtideError):
    """A checkpoint that cannot be used, with what to do about it. Nothing in it was changed.

    >>> raise st.CheckpointError("ckpt/", "is in use by process 7", "stop that run first")
    Traceback (most recent call last):
    springtide.state.errors.CheckpointError: checkpoint ckpt/ is in use by process 7; stop that run first
    """

    def __init__(self, path: str, problem: str, hint: str) -> None:
        """Keep the three parts, and say them in one line."""
        self.path, self.problem, self.hint = path, problem, hint
        super().__init__(f"checkpoint {path} {problem}; {hint}")

    def __reduce__(self) -> tuple[type[CheckpointError], tuple[str, str, str]]:
        """Survive a trip between processes."""
        return type(self), (self.path, self.problem, self.hint)


class AnotherFormError(CheckpointError):
    """A checkpoint that another form of the same query has written."""


class LostError(CheckpointError):
    """A segment of which no whole copy is left."""


class AwayError(CheckpointError):
    """A store that could not be reached, perhaps only for a while."""
