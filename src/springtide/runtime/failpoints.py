"""The places of a commit where a test can make the process die: see `springtide.connectors.failpoints`."""

from __future__ import annotations

from pathlib import Path

from springtide.connectors.failpoints import failpoint
from springtide.state.names import CONTROL

__all__ = ["PLACES", "failpoint", "fails_now"]

PLACES = ("before-job", "after-job", "after-manifest", "during-publish", "after-publish", "after-clean")
"""The steps of a commit, in order."""


def fails_now(root: Path, epoch: int) -> bool:
    """Return whether a failure that test rows want in an epoch has not happened yet; it is remembered next to the checkpoint."""
    marker = root / CONTROL / f"failed-{epoch}"
    if marker.exists():
        return False
    marker.parent.mkdir(exist_ok=True)
    marker.touch()
    return True
