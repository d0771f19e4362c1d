"""A manifest summed up, for people."""

from __future__ import annotations

from typing import Any

from springtide.state.manifest import Manifest, SubqueryState


def status_of(manifest: Manifest) -> dict[str, Any]:
    """Return how far a query has come: epoch, rows, side outputs, instances, state."""
    return {
        "epoch": manifest.epoch,
        "ended": manifest.ended,
        "sources": {
            name: {"accepted": s.accepted, "late": s.late, "rejected": s.rejected, "ended": s.ended}
            for name, s in manifest.sources.items()
        },
        "subqueries": {
            name: {"instances": m.instances} | _stored(manifest.state.get(name, SubqueryState()))
            for name, m in manifest.maps.items()
        },
        "metrics": manifest.metrics.to_json(),
    }


def _stored(state: SubqueryState) -> dict[str, int]:
    return {
        "segments": len(state.segments),
        "state_rows": sum(s.rows for s in state.segments),
        "state_bytes": sum(s.bytes for s in state.segments),
    }
