"""The one error of the command line: a sentence for the person who typed the command."""

from __future__ import annotations

from springtide.query.errors import SpringtideError


class CommandError(SpringtideError):
    """A command that cannot be done as it was given."""
