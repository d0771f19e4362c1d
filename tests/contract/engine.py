"""The kind `engine`: a random query over random data gives the rows of the reference, whatever the instances, cuts, restarts and losses."""

from __future__ import annotations

from pathlib import Path

from tests.properties.test_engine import check


def run_case(seed: int, folder: Path) -> str | None:
    """Run the case both ways; what differs comes as an error that says so."""
    check(seed, folder / "checkpoint")
    return None
