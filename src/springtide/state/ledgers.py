"""Ledgers of files at rest: whether their files are what was written, and whether they add up."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from springtide.state.manifest import FATES, Manifest
from springtide.state.stores import Store


def damaged_ledgers(store: Store, manifests: Sequence[Manifest]) -> Iterator[tuple[str, str]]:
    """Return the ledger files that have changed since they were written, and say what is wrong with each."""
    for file, crc in {file: crc for m in manifests for file, (_, crc) in m.ledgers().items()}.items():
        try:
            if zlib.crc32(store.read(file)) != crc:
                yield file, "is not what was written: its checksum does not match"
        except FileNotFoundError:
            yield file, "is missing"


def unlisted_files(store: Store, manifest: Manifest) -> Iterator[str]:
    """Return the sources whose counts of files that were read, changed or gone differ from their ledgers; for ledgers that are whole."""
    for name, source in manifest.sources.items():
        for ledger in source.ledgers():
            parts = [json.loads(store.read(file)) for file, _, _ in ledger.get("files", ())]
            fates = Counter({r[0]: r[4] for part in (*parts, ledger.get("recent", ())) for r in part}.values())
            counted = {fate: ledger.get(fate, 0) for fate in FATES}
            if +Counter(counted) != fates:
                yield f"source {name}: files are counted as {_said(counted)}, but recorded as {_said(fates)}"


def _said(counts: dict[str, Any]) -> str:
    return ", ".join(f"{counts.get(fate, 0)} {fate}" for fate in FATES)
