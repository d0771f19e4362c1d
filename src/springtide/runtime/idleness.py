"""Physical streams without rows: which of them no longer hold the others back, and up to which time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from springtide.exchange import gate
from springtide.query import steps
from springtide.query.ids import Micros
from springtide.query.types import END_OF_TIME
from springtide.state.manifest import SourceState

PhysicalStream = tuple[str, str]
"""(source, stream)."""


def idle_streams(
    sources: Mapping[str, steps.Source],
    states: Mapping[str, SourceState],
    by_spark: Container[str],
    silence: Callable[[PhysicalStream], float],
) -> dict[PhysicalStream, Micros]:
    """Return the idle streams, each with the time to which it moves: that of the slowest stream that is not idle.

    `silence` returns for how many seconds a stream has had no rows; `by_spark` are the sources that Spark reads, whose streams are unknown until they have rows.
    """
    times: dict[PhysicalStream, Micros] = {}
    for name, source in sources.items():
        known = states.get(name, SourceState()).times
        if not known and name in by_spark:
            known = {gate.UNSEEN: gate.BEGINNING}
        if source.ts is not None:
            times |= {(name, stream): time for stream, time in known.items() if time != END_OF_TIME}
    idle = {key for key in times if (limit := sources[key[0]].idle_after) is not None and silence(key) >= limit / 1e6}
    if not idle:
        return {}
    awake = [time for key, time in times.items() if key not in idle]
    upto = min(awake) if awake else max(times.values())  # where all are idle, none holds another back
    return {key: upto for key in idle if times[key] < upto}
