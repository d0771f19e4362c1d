"""The demo's query is inside the package, so that an installed wheel has it; tests/spark runs the command."""

from __future__ import annotations

import springtide as st
from springtide.cli.demo import heavy_callers


def test_query_of_the_demo_finds_the_talkative_callers() -> None:
    records = st.call_records(callers=20, per_second=1)(0, 0, 4_000)
    query = heavy_callers(st.source("calls", st.memory(records), ts="ts"), st.memory_sink())
    rows = query.run_reference().rows()
    full = rows.filter(rows["calls"] > 30)
    assert set(full["src"]) == {"600000000", "600000010"}
    assert full["avg"].min() > 600  # type: ignore[operator]
