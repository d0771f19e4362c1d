"""The kind `engine_in_store`: the cases of `engine` with the checkpoint in a store that misbehaves, and caches on nodes that take over from each other.

Caches are emptied and damaged between epochs, segments may never arrive, large and small ones have an index and are read by range.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from unittest import mock

from springtide.state import pieces, segment
from tests.properties.test_engine import check
from tests.stores.in_turn import in_turn
from tests.stores.misbehaving import Misbehaving, served


def run_case(seed: int, folder: Path) -> str | None:
    """Run the case both ways; what differs comes as an error that says so."""
    random = Random(seed + 0.75)
    bucket = Misbehaving(seed, trouble=random.choice([0.0, 0.1, 0.3]))
    with (
        served(bucket=bucket),
        in_turn(random, late=random.choice([0.0, 0.0, 0.2])),
        mock.patch.object(segment, "LEAST", random.choice([0, 1 << 20])),
        mock.patch.object(pieces, "WORTH", random.choice([0.8, 2.0])),
    ):
        check(seed, folder / "checkpoint", "fake://bucket/checkpoint")
    return None
