from __future__ import annotations

from collections.abc import Callable

import polars as pl

import springtide as st
from springtide.compiler.explain import explain
from springtide.compiler.mermaid import mermaid
from springtide.compiler.tables import columns


def test_one_line_per_subquery_begins_with_the_word(every_kind: st.Query) -> None:
    plan = every_kind.plan()
    lines = [line for line in every_kind.explain().splitlines() if line.startswith("subquery ")]
    assert [line.split()[1] for line in lines] == [s.name for s in plan.subqueries if not s.merges]


def test_long_descriptions_are_wrapped_under_themselves(stream: Callable[..., st.Stream]) -> None:
    wide = stream("s", **{f"column_{i}": pl.Int64 for i in range(20)})
    text = explain(st.Query("wide", wide.to(st.memory_sink())).plan(), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "\n                     column_" in text


def test_mermaid_of_every_kind(every_kind: st.Query, golden: Callable[[str, str], None]) -> None:
    golden("compiler/mermaid", every_kind.explain(as_mermaid=True))


def test_mermaid_draws_every_step_of_every_subquery_and_every_exchange(every_kind: st.Query) -> None:
    plan, text = every_kind.plan(), mermaid(every_kind.plan())
    assert text.count("subgraph ") == text.count("\n  end") == len(plan.subqueries)
    assert text.count("<b>") == sum(len(s.steps) for s in plan.subqueries)
    assert text.count("==>") == len(plan.exchanges)


def test_mermaid_quotes_what_it_would_read_as_its_own(stream: Callable[..., st.Stream]) -> None:
    s = stream("end", x=pl.String).filter((pl.col("x") > '"<&>"#1;') & (pl.col("x") < "end"), name="x[0] --> y;")
    text = mermaid(st.Query("q", s.to(st.memory_sink())).plan())
    assert '["<b>x[0] --#gt; y;</b><br/>(x #gt; #quot;#quot;#lt;#amp;#gt;#quot;#35;1;#quot;)' in text


def test_columns_align_and_leave_no_blanks_behind() -> None:
    assert columns([("a", "10", ""), ("bb", "5", "x")], right=[1]) == ["a   10", "bb   5  x"]
    assert columns([]) == []
