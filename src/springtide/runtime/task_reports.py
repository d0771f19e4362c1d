"""Reads the reports that tasks send to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable

from springtide.runtime.epoch import TaskReport
from springtide.state.errors import LostError


def read_task_reports(items: Iterable[tuple[int, int, bytes]]) -> list[TaskReport]:
    """Read the reports at the end of an epoch's last level; raise an error if a task could not find state that it needed."""
    reports = [TaskReport.from_json(json.loads(payload)) for _, _, payload in items]
    for report in reports:
        if report.lost is not None:
            raise LostError(*report.lost)
    return reports
