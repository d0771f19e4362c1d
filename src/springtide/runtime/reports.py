"""Reports on their way from tasks to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable

from springtide.runtime.epoch import Report


def reports_of(items: Iterable[tuple[int, int, bytes]]) -> list[Report]:
    """Read the reports at the end of an epoch's last level."""
    return [Report.from_json(json.loads(payload)) for _, _, payload in items]
