"""The cut of the input into epochs, as replicas agree on it: what one of them finds, all of them take. Pure.

It contains what a run without replicas decides by itself: the slices of every source, the positions after them, the ends, and which streams were found idle.
What only one checkpoint knows, namely the files with a ledger's older records, is left out, and filled in from each replica's own checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from springtide.connectors import Slice, Take
from springtide.query.ids import Micros
from springtide.state.manifest import SourceState
from springtide.state.parsing import NewerFormat, parsed

Takes = Mapping[str, Mapping[str, Take]]
"""Source → input → what it contributes to an epoch."""
Idle = Mapping[tuple[str, str], Micros]
"""(source, physical stream) → the time to which it was advanced because it was idle."""

_FORMAT = 1
_OWN = ("reader", "source", "time")
"""Parts of a slice that the engine fills in."""
_TAKE = ("position", "times", "streams", "ended", "backlog", "greatest")


@dataclass(frozen=True)
class Cut:
    """The input of one epoch."""

    before: str
    """A digest of how far the sources were read before it: a replica at another position must not take part."""
    by: str
    """The replica that proposed it."""
    takes: Takes
    idle: Idle = field(default_factory=dict)

    def encode(self) -> bytes:
        """Write it as JSON."""
        takes = {
            source: {label: _written(take) for label, take in found.items()} for source, found in self.takes.items()
        }
        idle = [[source, stream, time] for (source, stream), time in sorted(self.idle.items())]
        body = {"format": _FORMAT, "before": self.before, "by": self.by, "takes": takes, "idle": idle}
        return json.dumps(body, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> Cut:
        """Read what `encode` wrote; raise a ValueError if it is something else."""
        body = parsed(data)
        try:
            if body["format"] != _FORMAT:
                raise NewerFormat(f"has format {body['format']}, this version of Springtide reads {_FORMAT}")
            takes = {
                str(source): {str(label): _read(take) for label, take in found.items()}
                for source, found in body["takes"].items()
            }
            idle = {(str(source), str(stream)): Micros(int(time)) for source, stream, time in body["idle"]}
            return Cut(str(body["before"]), str(body["by"]), takes, idle)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not the cut of an epoch: {error}") from None


def digest_of(states: Mapping[str, SourceState]) -> str:
    """Return a digest of how far the sources have been read: the same for all replicas after the same epoch."""
    found = {name: state.to_json() | {"position": shared(state.position)} for name, state in sorted(states.items())}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:32]


def shared(position: Any) -> Any:
    """Return a position without what belongs to a single checkpoint."""
    if not isinstance(position, dict) or "ledger" not in position:
        return position
    return position | {"ledger": {k: v for k, v in position["ledger"].items() if k != "files"}}


def own(position: Any, before: Any) -> Any:
    """Return an agreed position, completed with what belongs to a replica's own checkpoint, as it was before the epoch."""
    if not isinstance(position, dict) or "ledger" not in position:
        return position
    files = before["ledger"].get("files") if isinstance(before, dict) and "ledger" in before else None
    return position if files is None else position | {"ledger": position["ledger"] | {"files": files}}


def _written(take: Take) -> dict[str, Any]:
    slices = [{k: v for k, v in asdict(part).items() if k not in _OWN} for part in take.slices]
    parts = {name: getattr(take, name) for name in _TAKE}
    return parts | {"position": shared(take.position), "times": dict(take.times), "slices": slices}


def _read(data: dict[str, Any]) -> Take:
    parts = {name: data[name] for name in _TAKE} | {"streams": tuple(data["streams"])}
    return Take(slices=tuple(_slice(part) for part in data["slices"]), **parts)


def _slice(data: dict[str, Any]) -> Slice:
    arrived = data.get("arrived")
    return Slice(**data | {"arrived": None if arrived is None else (arrived[0], arrived[1])})
