"""Where ledgers of files are kept: a manifest has the newest records, files of the checkpoint have the others.

    manifest N     position: {…, "ledger": {"files": [[state/files/…, 4096, crc], [state/files/…, 256, crc]], "recent": [12 records]}}

So a manifest does not grow with the files that were ever read, and an epoch writes a file only when many records have come together.
Files of about the same size are merged into one: there are few of them, however many records there are.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from springtide.connectors.file_ledger import NOTHING_READ, Base, FileRecord
from springtide.state.errors import CheckpointError
from springtide.state.manifest import SourceState
from springtide.state.names import LEDGERS
from springtide.state.tiers import Tiers

RECENT = 256
"""The most records that a manifest has for each input."""


class Ledgers:
    """The ledgers of a query's sources, as one run has them open."""

    def __init__(self, tiers: Callable[[], Tiers]) -> None:
        """Begin with none open."""
        self._tiers = tiers
        self._open: dict[tuple[str, str], tuple[Base, set[str]]] = {}

    def of(self, sources: Collection[str]) -> Ledgers:
        """Return those of some sources, for another form of the query; one that comes later under an old name begins with none."""
        other = Ledgers(self._tiers)
        other._open = {key: found for key, found in self._open.items() if key[0] in sources}
        return other

    def opened(self, source: str, label: str, position: Any) -> Any:
        """Add to a position's ledger what is in its files, and what this run remembers; a position without a ledger stays as it is."""
        ledger = position.get("ledger") if isinstance(position, dict) else None
        if ledger is None:
            return position
        base, loaded = self._open.setdefault((source, label), (Base(), set()))
        for file, _, crc in ledger.get("files", ()):
            if file not in loaded:  # newer than all that are loaded: a merged one counts as loaded when it is made
                base.records |= {r[0]: FileRecord(*r) for r in self._records(file, crc)}
                loaded.add(file)
        return position | {"ledger": ledger | {"base": base}}

    def closed(self, position: Any) -> Any:
        """Return a position as it is written to the manifest."""
        if not isinstance(position, dict) or "base" not in position.get("ledger", {}):
            return position
        written = position | {"ledger": {k: v for k, v in position["ledger"].items() if k != "base"}}
        return None if written == NOTHING_READ else written

    def settled(self, sources: Mapping[str, SourceState]) -> dict[str, SourceState]:
        """Move records to files if there are many; the states that are returned are committed next."""
        return {name: self._settled_source(name, state) for name, state in sources.items()}

    def _settled_source(self, name: str, state: SourceState) -> SourceState:
        position = self._settled(name, "", state.position)
        attached = {
            label: replace(of, position=self._settled(name, label, of.position)) for label, of in state.attached.items()
        }
        return replace(state, position=position, attached=attached)

    def _settled(self, source: str, label: str, position: Any) -> Any:
        ledger = position.get("ledger") if isinstance(position, dict) else None
        if not ledger or len(ledger["recent"]) <= RECENT:
            return position
        files = [*ledger.get("files", ()), self._write(ledger["recent"])]
        _, loaded = self._open[source, label]
        while len(files) > 2 and files[-3][1] < 2 * files[-2][1]:  # the newest one is not loaded, and stays alone
            first, second = files[-3], files[-2]
            merged = self._write(_newest([*self._records(first[0], first[2]), *self._records(second[0], second[2])]))
            loaded.add(merged[0])
            files[-3:-1] = [merged]
        return position | {"ledger": ledger | {"files": files, "recent": []}}

    def _write(self, records: list[list[Any]]) -> list[Any]:
        data, tiers = json.dumps(records, separators=(",", ":")).encode(), self._tiers()
        file = f"{LEDGERS}/{uuid.uuid4().hex}.json"
        path = tiers.here / file
        path.parent.mkdir(parents=True, exist_ok=True)
        tiers.with_room(lambda: path.write_bytes(data))
        return [tiers.settle(file), len(records), zlib.crc32(data)]

    def _records(self, file: str, crc: int) -> list[list[Any]]:
        tiers = self._tiers()
        try:
            data = tiers.fetched(file).read_bytes()
        except FileNotFoundError:
            data = None
        if data is None or zlib.crc32(data) != crc:
            problem = f"has lost {file}, with the names of files that were read: it is {'missing' if data is None else 'damaged'}"
            hint = "restore it from a copy (springtide checkpoint restore): without it files would be read twice"
            raise CheckpointError(str(tiers.root), problem, hint)
        records: list[list[Any]] = json.loads(data)
        return records


def _newest(records: list[list[Any]]) -> list[list[Any]]:
    return list({r[0]: r for r in records}.values())
