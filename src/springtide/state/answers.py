"""Answers to commands: what became of each, in a file next to the command that only its sender looks for.

control/17…-3fa9c1.json      the command, until it has been carried out
control/17…-3fa9c1.result    the answer; it is replaced as more becomes known

(no answer yet) ──→ waiting: executors have been requested ──→ done ──→ done, with what it cost: final
              ├───→ refused: it makes no sense, nothing was changed: final
              └───→ failed: something came in between: final
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from springtide.query.plurals import plural
from springtide.state.disk import write
from springtide.state.names import ANSWER
from springtide.state.parsing import content, parsed

KEPT = 100
"""Answers that are kept; older ones are removed."""
_LONGEST = 1 << 20

Status = Literal["sent", "waiting", "done", "refused", "failed"]


@dataclass(frozen=True)
class Change:
    """How a command changed a subquery."""

    subquery: str
    kind: str
    """`scale`, `move` or `rebalance`."""
    before: int
    """Instances before the change."""
    after: int
    """Instances after it."""
    moved: int
    """Buckets that changed owners."""
    buckets: int
    """All buckets of the subquery; 0 for one without state."""
    seconds: float | None = None
    """How long the first epoch with the change took; None while it is not over."""
    extra_seconds: float | None = None
    """How much longer that is than the median of the epochs before it."""
    bytes_moved: int | None = None
    """Bytes of state in the buckets that changed owners."""

    def __str__(self) -> str:
        """Return a short description of the change.

        >>> from springtide.state.answers import Change
        >>> print(Change("heavy", "scale", before=2, after=3, moved=80, buckets=256))
        2 → 3 instances
        """
        if self.before != self.after:
            return f"{self.before} → {plural(self.after, 'instance')}"
        return "moved" if self.kind == "move" else "balanced"


@dataclass(frozen=True)
class Answer:
    """What became of a command."""

    status: Status
    """`sent`: no run has taken it up; `waiting`: for executors; `done`; `refused`; `failed`."""
    reason: str = ""
    """Why it was refused, failed or waits, or why there was nothing to do."""
    epoch: int | None = None
    """The first epoch with the change; of `stop` the last epoch."""
    change: Change | None = None
    """None if nothing changed."""
    final: bool = True
    """Whether there is no more to come."""

    def to_json(self) -> dict[str, Any]:
        """Return what is written to the file."""
        return asdict(self)

    @staticmethod
    def from_json(data: Any) -> Answer:
        """Read what `to_json` returned; a ValueError if it is something else."""
        try:
            change = data["change"]
            answer = Answer(**data | {"change": None if change is None else Change(**change)})
        except (TypeError, KeyError) as error:
            raise ValueError(f"it is not an answer: {error}") from None
        if answer.status not in get_args(Status):
            raise ValueError(f"it has the unknown status {answer.status!r}")
        return answer


def write_answer(command: Path, answer: Answer) -> None:
    """Put the answer next to the file of its command, whole and durable, replacing an earlier one."""
    write(command.with_suffix(ANSWER), json.dumps(answer.to_json()).encode())
    if answer.final:
        _prune(command.parent)


def read_answer(command: Path) -> Answer | None:
    """Return the answer to the command that was left as this file; None if there is none that can be read."""
    try:
        return Answer.from_json(parsed(content(command.with_suffix(ANSWER), _LONGEST, follow=False)))
    except (OSError, ValueError):
        return None


def _prune(folder: Path) -> None:
    """Remove the oldest answers."""
    with os.scandir(folder) as entries:
        found = [e for e in entries if e.name.endswith(ANSWER) and e.is_file(follow_symlinks=False)]
    oldest_first = sorted(found, key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
    for entry in oldest_first[:-KEPT]:
        Path(entry.path).unlink(missing_ok=True)
