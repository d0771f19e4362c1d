"""Kinds of cases that are no cases: they hang, and end their process. For the tests of the runner."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.contract.kinds import Kind


def hang(seed: int, folder: Path) -> str | None:
    """Never come to an end, for one seed."""
    while seed == 1:
        time.sleep(1)
    return None


def die(seed: int, folder: Path) -> str | None:
    """End the process, for one seed."""
    if seed == 1:
        os._exit(7)
    return None


KINDS = {"hangs": Kind(hang), "dies": Kind(die)}
